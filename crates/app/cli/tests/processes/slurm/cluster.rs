//! Slurm on this machine, for one test: `tools/slurm-on-one-machine.sh` starts its daemons and ends them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::harness::{stderr, stdout};

/// How often a wait looks again.
const POLL: Duration = Duration::from_millis(100);

/// A controller and two nodes.
pub struct Cluster {
    folder: PathBuf,
    configuration: String,
}

impl Cluster {
    /// Starts the daemons, with their files in `folder`.
    pub fn start(folder: &Path) -> Cluster {
        // Daemons end with it, also those that were started before one that was not.
        let mut cluster = Cluster { folder: folder.to_path_buf(), configuration: String::new() };
        let started = script("start", folder);
        assert!(started.status.success(), "{}", stderr(&started));
        let line = stdout(&started);
        cluster.configuration =
            line.trim().strip_prefix("export SLURM_CONF=").expect("the line for shells").to_string();
        cluster
    }

    /// A command of Slurm, from a folder of one's own. Jobs find `pleach` on their path.
    pub fn command(&self, program: &str, folder: &Path) -> Command {
        let pleach = Path::new(env!("CARGO_BIN_EXE_pleach")).parent().expect("a folder");
        let path = format!("{}:{}", pleach.display(), std::env::var("PATH").unwrap_or_default());
        let mut command = Command::new(program);
        command.current_dir(folder).env("PATH", path).env("SLURM_CONF", &self.configuration);
        command.env("PLEACH_TOKEN", "5".repeat(64));
        command
    }

    /// A field of `scontrol show job`.
    pub fn field(&self, job: &str, name: &str) -> String {
        let output = self.command("scontrol", &self.folder).args(["show", "job", job]).output().expect("scontrol");
        let text = stdout(&output);
        let found = text.split_whitespace().find_map(|field| field.strip_prefix(&format!("{name}=")));
        found.unwrap_or_else(|| panic!("{name} of job {job}: {text}{}", stderr(&output))).to_string()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        script("stop", &self.folder);
    }
}

fn script(action: &str, folder: &Path) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tools/slurm-on-one-machine.sh");
    Command::new("bash").arg(script).arg(action).arg(folder).output().expect("bash")
}

/// Waits until `is_so`.
pub fn await_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(240), "{what} has not come");
        std::thread::sleep(POLL);
    }
}
