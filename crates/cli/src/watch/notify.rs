//! A command of the user that is called on events of a run.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use sync::lock;

use crate::screen::output::tell;

/// Longest time that the end of a run waits for commands that still run.
const PATIENCE: Duration = Duration::from_secs(5);

/// An event of which the command hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The first step is about to begin.
    Started,
    /// A step is not as usual.
    Anomaly,
    /// A rank or a link is slower than its peers.
    Straggler,
    /// A checkpoint could not be written.
    NotSaved,
    /// All steps are done.
    Finished,
    /// A signal has ended the run, with a checkpoint.
    Stopped,
    /// The run has failed.
    Failed,
}

impl Event {
    /// The value of `PLEACH_EVENT`.
    pub fn name(self) -> &'static str {
        match self {
            Event::Started => "started",
            Event::Anomaly => "anomaly",
            Event::Straggler => "straggler",
            Event::NotSaved => "not-saved",
            Event::Finished => "finished",
            Event::Stopped => "stopped",
            Event::Failed => "failed",
        }
    }
}

/// The command of `run.notify`.
#[derive(Debug)]
pub struct Notify {
    command: String,
    run: PathBuf,
    running: Mutex<Vec<Child>>,
}

impl Notify {
    /// `command` for the run in `run`.
    pub fn new(command: &str, run: &Path) -> Notify {
        Notify { command: command.into(), run: run.into(), running: Mutex::default() }
    }

    /// Calls the command and does not wait for it. Its messages go to the standard error.
    pub fn event(&self, event: Event, step: u32, message: &str) {
        let mut command = Command::new("sh");
        command.args(["-c", &self.command]).stdin(Stdio::null()).stdout(Stdio::null());
        command.env("PLEACH_EVENT", event.name()).env("PLEACH_RUN", &self.run);
        command.env("PLEACH_STEP", step.to_string()).env("PLEACH_MESSAGE", message);
        // The token of the run is for its processes alone.
        command.env_remove(launcher::variable::TOKEN);
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        match command.spawn() {
            Ok(child) => {
                let mut running = lock(&self.running);
                running.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
                running.push(child);
            }
            Err(error) => tell(&format!("run.notify = {:?} cannot be started: {error}\n", self.command)),
        }
    }
}

impl Drop for Notify {
    fn drop(&mut self) {
        let until = Instant::now() + PATIENCE;
        for child in lock(&self.running).iter_mut() {
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_hears_event_run_step_and_message() {
        let folder = std::env::temp_dir().join(format!("pleach-notify-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let command = "echo \"$PLEACH_EVENT $PLEACH_STEP $PLEACH_MESSAGE\" >> \"$PLEACH_RUN/heard\"";
        let notify = Notify::new(command, &folder);
        notify.event(Event::Anomaly, 7, "loss \"NaN\"; $(false)");
        // The end of a run waits for commands.
        drop(notify);
        let heard = std::fs::read_to_string(folder.join("heard")).expect("it ran");
        assert_eq!(heard, "anomaly 7 loss \"NaN\"; $(false)\n");
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
