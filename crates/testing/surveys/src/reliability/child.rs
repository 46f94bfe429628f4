//! A child process of a trial: its role, and the lines by which its parent follows it.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use checkpoint::{CheckpointError, Disk, Retention, Store};
use prove::ProofError;
use testkit::faulty_disk::{Access, Fault, FaultyDisk};

use super::reference::run_and_report;

/// A child that reports nothing for so long is hung: a step takes milliseconds.
const DEADLINE: Duration = Duration::from_secs(120);

/// The task of a child process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// Trains the reference with checkpoints in a folder, reports each step, and halts after this number of bytes of
    /// its saves.
    Train {
        /// The folder.
        folder: PathBuf,
        /// Bytes.
        bytes: u64,
    },
    /// Takes the lock of a folder, reports it, and waits to be killed.
    Hold {
        /// The folder.
        folder: PathBuf,
    },
}

impl Role {
    /// Reads what [`Role::words`] gives; `None` for anything else.
    pub fn parse(words: &[String]) -> Option<Role> {
        match words {
            [role, folder, bytes] if role == "train" => {
                Some(Role::Train { folder: folder.into(), bytes: bytes.parse().ok()? })
            }
            [role, folder] if role == "hold" => Some(Role::Hold { folder: folder.into() }),
            _ => None,
        }
    }

    /// Arguments of a child that has this role.
    pub fn words(&self) -> Vec<String> {
        match self {
            Role::Train { folder, bytes } => vec!["train".into(), folder.display().to_string(), bytes.to_string()],
            Role::Hold { folder } => vec!["hold".into(), folder.display().to_string()],
        }
    }

    /// Does what the role asks, in the child.
    ///
    /// # Errors
    /// A run that ends otherwise than it should.
    pub fn perform(&self) -> Result<(), ProofError> {
        match self {
            Role::Train { folder, bytes } => {
                let halted = |access: Access| println!("{}", Report::Halted { access: access.to_string() });
                let disk = FaultyDisk::new(Fault::Halt(halted), *bytes);
                run_and_report(Arc::new(disk), folder, |step| println!("{}", Report::Step { loss: step.loss }))
                    .map(drop)
            }
            Role::Hold { folder } => {
                let _held = open(folder)?;
                println!("{}", Report::Held);
                loop {
                    std::thread::park();
                }
            }
        }
    }
}

/// Takes the lock of `folder`.
pub(super) fn open(folder: &Path) -> Result<Store, CheckpointError> {
    Store::open(folder, Arc::new(Disk), Retention { newest: 1, every: 0, best: 0 })
}

/// Begins each report; the harness of a test may have written something before it on the same line.
const MARK: &str = "pleach-trial ";

/// One line of a child.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// It has done one more step.
    Step {
        /// Mean loss of the step.
        loss: f64,
    },
    /// It has no byte left, waits in the middle of a save, and trains on until a step needs that save.
    Halted {
        /// The next action of the save: `data`, `sync` or `name`.
        access: String,
    },
    /// It has the lock.
    Held,
}

impl Report {
    /// Reads a line; `None` for a line of someone else.
    pub fn parse(line: &str) -> Option<Report> {
        let words: Vec<&str> = line.split_once(MARK)?.1.split_whitespace().collect();
        match words[..] {
            ["step", bits] => Some(Report::Step { loss: f64::from_bits(u64::from_str_radix(bits, 16).ok()?) }),
            ["halted", access] => Some(Report::Halted { access: access.into() }),
            ["held"] => Some(Report::Held),
            _ => None,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Report::Step { loss } => write!(f, "{MARK}step {:016x}", loss.to_bits()),
            Report::Halted { access } => write!(f, "{MARK}halted {access}"),
            Report::Held => write!(f, "{MARK}held"),
        }
    }
}

/// Why a child was not killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NotKilled {
    /// It had ended before.
    Ended(String),
    /// It cannot be started, or is hung.
    Failed(String),
}

/// A child that runs. Dropped, it is killed.
pub(super) struct Child {
    process: std::process::Child,
    reports: Receiver<Report>,
}

impl Child {
    pub(super) fn start(mut command: Command) -> std::io::Result<Child> {
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let reports = process.stdout.take().map_or_else(|| channel().1, follow);
        Ok(Child { process, reports })
    }

    /// The next report; none after the end.
    pub(super) fn next(&self) -> Result<Option<Report>, NotKilled> {
        match self.reports.recv_timeout(DEADLINE) {
            Ok(report) => Ok(Some(report)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => {
                Err(NotKilled::Failed(format!("the child has reported nothing for {} s", DEADLINE.as_secs())))
            }
        }
    }

    /// Why there is no further report.
    pub(super) fn ended(&mut self) -> NotKilled {
        match self.process.wait() {
            Ok(status) => NotKilled::Ended(format!("the child had ended before ({status})")),
            Err(error) => NotKilled::Failed(error.to_string()),
        }
    }

    /// Kills it, where it still lives.
    pub(super) fn kill(&mut self) -> Result<(), NotKilled> {
        let failed = |error: std::io::Error| NotKilled::Failed(error.to_string());
        if self.process.try_wait().map_err(failed)?.is_some() {
            return Err(self.ended());
        }
        self.process.kill().map_err(failed)?;
        let status = self.process.wait().map_err(failed)?;
        match died_of_the_kill(status) {
            true => Ok(()),
            false => Err(NotKilled::Ended(format!("the child did not die of the kill ({status})"))),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // One that is dead already cannot be killed once more.
        let _ = self.process.kill().and_then(|()| self.process.wait());
    }
}

/// Reads on a thread of its own, so that the parent can wait with a deadline.
fn follow(out: ChildStdout) -> Receiver<Report> {
    let (send, reports) = channel();
    std::thread::spawn(move || {
        let lines = BufReader::new(out).lines().map_while(Result::ok);
        // Where nobody reads any more, the trial is over.
        lines.filter_map(|line| Report::parse(&line)).all(|report| send.send(report).is_ok())
    });
    reports
}

fn died_of_the_kill(status: ExitStatus) -> bool {
    const SIGKILL: i32 = 9;
    std::os::unix::process::ExitStatusExt::signal(&status) == Some(SIGKILL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_read_as_they_are_written() {
        let halted = Report::Halted { access: "sync".into() };
        for report in [Report::Step { loss: 4.1 }, Report::Step { loss: f64::INFINITY }, halted, Report::Held] {
            assert_eq!(Report::parse(&format!("test child ... {report}")), Some(report));
        }
        for line in ["running 1 test", "pleach-trial", "pleach-trial step", "pleach-trial step loss", "held"] {
            assert_eq!(Report::parse(line), None, "{line}");
        }
    }
}
