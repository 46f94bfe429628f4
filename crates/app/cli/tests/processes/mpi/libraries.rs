//! The libraries of MPI of this machine, and runs by their mpiexec.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::harness::free_port;

/// Longest time of a test's run. Every run ends long before.
const LIMIT: Duration = Duration::from_secs(240);

/// A library with its launcher.
pub struct Library {
    pub name: &'static str,
    pub mpiexec: PathBuf,
    /// The file, where the launcher alone does not lead to it.
    pub given: Option<PathBuf>,
    /// Its version, by itself, begins with this.
    pub version: &'static str,
    /// Options of the launcher.
    options: &'static [&'static str],
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize().expect("a folder")
}

/// The libraries that tests use, by the name of each file.
pub fn all() -> Vec<Library> {
    let wheels = repository().join("target/mpi");
    let open_mpi: &[&str] = &["--oversubscribe"];
    let library = |name, mpiexec: PathBuf, given, version, options| Library { name, mpiexec, given, version, options };
    let (mpich, intel) = (wheels.join("mpich"), wheels.join("intel"));
    let all = vec![
        library("MPI 5 of MPICH 5", mpich.join("bin/mpiexec"), None, "MPICH 5", &[]),
        library("MPICH 5", mpich.join("bin/mpiexec"), Some(mpich.join("lib/libmpi.so.12")), "MPICH 5", &[]),
        library("Debian's MPICH", "/usr/bin/mpiexec.mpich".into(), None, "MPICH 4", &[]),
        library("Debian's Open MPI", "/usr/bin/mpiexec.openmpi".into(), None, "Open MPI v4", open_mpi),
        library("MPI 5 of Intel MPI", intel.join("bin/mpiexec"), None, "Intel(R) MPI", &[]),
        library("Intel MPI", intel.join("bin/mpiexec"), Some(intel.join("lib/libmpi.so.12")), "Intel(R) MPI", &[]),
    ];
    let missing = all.iter().filter(|library| !library.mpiexec.exists()).map(|library| library.name);
    let missing: Vec<&str> = missing.collect();
    assert!(missing.is_empty(), "{missing:?} must be installed: run tools/install-mpi.sh");
    all
}

/// One for each library, whatever ABIs it has.
pub fn of_each_library() -> Vec<Library> {
    all().into_iter().filter(|library| library.given.is_none()).collect()
}

/// The library of this name.
pub fn named(name: &str) -> Library {
    all().into_iter().find(|library| library.name == name).expect("a library of the list")
}

impl Library {
    /// The option with which the launcher leaves the other processes to pleach when one has ended, so that they name
    /// it. That of Open MPI names the rank itself.
    pub fn without_cleanup(&self) -> &'static [&'static str] {
        if self.is_open_mpi() { &[] } else { &["-disable-auto-cleanup"] }
    }

    pub fn is_open_mpi(&self) -> bool {
        self.name == "Debian's Open MPI"
    }

    /// The mpiexec with `number` processes of `program`, not started.
    pub fn command(&self, number: usize, program: &[&str]) -> Command {
        let mut command = Command::new(&self.mpiexec);
        command.args(self.options).args(self.without_cleanup()).args(["-n", &number.to_string()]).args(program);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("PLEACH_RENDEZVOUS", format!("127.0.0.1:{}", free_port())).env("PLEACH_TOKEN", "5a".repeat(32));
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        match &self.given {
            Some(library) => command.env("PLEACH_MPI_LIBRARY", library),
            None => command.env_remove("PLEACH_MPI_LIBRARY"),
        };
        command
    }

    /// `pleach` with these arguments in `number` processes, to its end.
    pub fn pleach(&self, number: usize, arguments: &[&str]) -> Output {
        let program = [&[env!("CARGO_BIN_EXE_pleach")], arguments].concat();
        ended(self.command(number, &program).spawn().expect("mpiexec"))
    }
}

/// Waits for `child`, at most [`LIMIT`]; then it is killed, and the test fails. Afterwards none of its descendants
/// lives.
pub fn ended(mut child: Child) -> Output {
    let read = |pipe: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = vec![];
            pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
            bytes
        })
    };
    let stdout = read(child.stdout.take().map(|pipe| Box::new(pipe) as _));
    let stderr = read(child.stderr.take().map(|pipe| Box::new(pipe) as _));
    let started = Instant::now();
    let mut known = vec![];
    let (status, is_late) = loop {
        known.extend(descendants(child.id()));
        known.sort_unstable();
        known.dedup();
        if let Some(status) = child.try_wait().expect("a status") {
            break (status, false);
        }
        if started.elapsed() > LIMIT {
            child.kill().expect("kill");
            break (child.wait().expect("a status"), true);
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    // Launchers end their processes by signals, which may take a moment to arrive.
    let since = Instant::now();
    while known.iter().any(|pid| is_pleach(*pid)) && since.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let left: Vec<u32> = known.into_iter().filter(|pid| is_pleach(*pid)).collect();
    let text = |thread: std::thread::JoinHandle<Vec<u8>>| thread.join().expect("a reader");
    let output = Output { status, stdout: text(stdout), stderr: text(stderr) };
    assert!(!is_late, "the run took longer than {LIMIT:?}: {}", said(&output));
    assert!(left.is_empty(), "processes {left:?} are left: {}", said(&output));
    output
}

/// All that the processes of a run printed.
pub fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The processes below `pid`.
pub fn descendants(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children = tasks.flat_map(|task| {
        let text = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        text.split_whitespace().filter_map(|child| child.parse().ok()).collect::<Vec<u32>>()
    });
    children.flat_map(|child| [vec![child], descendants(child)].concat()).collect()
}

/// Whether `pid` is a process of this command that lives.
pub fn is_pleach(pid: u32) -> bool {
    std::fs::read_link(format!("/proc/{pid}/exe"))
        .is_ok_and(|program| program == Path::new(env!("CARGO_BIN_EXE_pleach")))
}
