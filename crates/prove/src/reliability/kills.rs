//! R3 and R19: processes that die, in the middle of a save or while they hold a lock.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use checkpoint::{CheckpointError, Disk, Retention, Store};
use train::Wish;

use super::reference::{newest_is_sound, run_saved};
use super::{Reference, Shown, TrialFolder, draw};
use crate::faulty_disk::{Fault, FaultyDisk};
use crate::runner::ProofError;

/// What a child process does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// Runs the reference with checkpoints in a folder and dies after so many bytes.
    Train {
        /// The folder.
        folder: PathBuf,
        /// Bytes.
        bytes: u64,
    },
    /// Takes the lock of a folder, says so on the standard output, and waits to be killed.
    Hold {
        /// The folder.
        folder: PathBuf,
    },
}

/// What a child says when it has the lock.
const HELD: &str = "held";

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
                run_saved(Arc::new(FaultyDisk::new(Fault::Abort, *bytes)), folder, |_| Wish::Continue).map(drop)
            }
            Role::Hold { folder } => {
                let _held = open(folder)?;
                println!("{HELD}");
                loop {
                    std::thread::park();
                }
            }
        }
    }
}

fn open(folder: &Path) -> Result<Store, CheckpointError> {
    Store::open(folder, Arc::new(Disk), Retention { newest: 1, every: 0, best: 0 })
}

/// Children that are killed at random bytes of a run that saves after each step: the newest checkpoint always loads, and the run that goes on
/// from it is the same.
///
/// # Errors
/// A run that fails undisturbed.
pub fn kills(
    reference: &Reference,
    trials: usize,
    child: &dyn Fn(&Role) -> std::io::Result<Command>,
) -> Result<Shown, ProofError> {
    let folder = TrialFolder::new("kills").map_err(failed)?;
    let whole = FaultyDisk::new(Fault::Full, FaultyDisk::PLENTY);
    run_saved(Arc::new(whole.clone()), folder.path(), |_| Wish::Continue)?;
    let all = FaultyDisk::PLENTY - whole.left();
    let (mut failures, mut found) = (Vec::new(), vec![0usize; reference.steps() as usize + 1]);
    for number in 0..trials {
        folder.clear().map_err(failed)?;
        let bytes = draw(3, number)[0] as u64 % all;
        let role = Role::Train { folder: folder.path().into(), bytes };
        let survived = || -> Result<u32, String> {
            let mut command = child(&role).map_err(|error| error.to_string())?;
            let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
            if status.map_err(|error| error.to_string())?.success() {
                return Err("the child did not die".into());
            }
            let steps = newest_is_sound(folder.path())?;
            reference.completes(folder.path()).map(|()| steps)
        };
        match survived() {
            Ok(steps) => found[steps as usize] += 1,
            Err(error) => failures.push(format!("killed after {bytes} of {all} bytes: {error}")),
        }
    }
    let found: Vec<String> = found.iter().map(usize::to_string).collect();
    Ok(Shown {
        number: "R3",
        fault: "the process is killed at a random byte of its saves",
        demand: "the newest commit loads whole; the run that goes on is the same",
        trials,
        failures,
        seen: format!("newest commit after step 0, 1, .. : {} times", found.join(", ")),
    })
}

/// A second run in a folder is refused while a child has it, and not when the child was killed.
///
/// # Errors
/// A child that cannot be started.
pub fn locks(trials: usize, child: &dyn Fn(&Role) -> std::io::Result<Command>) -> Result<Shown, ProofError> {
    let folder = TrialFolder::new("locks").map_err(failed)?;
    let mut failures = Vec::new();
    for number in 0..trials {
        let role = Role::Hold { folder: folder.path().into() };
        let mut holder = child(&role).and_then(|mut command| command.stdout(Stdio::piped()).spawn()).map_err(failed)?;
        let lines = holder.stdout.take().map(|out| BufReader::new(out).lines());
        let is_held = lines.into_iter().flatten().any(|line| line.is_ok_and(|line| line.contains(HELD)));
        let refused = matches!(open(folder.path()), Err(CheckpointError::Locked { .. }));
        holder.kill().and_then(|()| holder.wait()).map_err(failed)?;
        let recovered = open(folder.path()).is_ok();
        if !(is_held && refused && recovered) {
            failures.push(format!("trial {number}: held {is_held}, refused {refused}, recovered {recovered}"));
        }
    }
    Ok(Shown {
        number: "R19",
        fault: "two runs in one folder; the first is killed",
        demand: "the second is refused while the first lives, and only then",
        trials,
        failures,
        seen: String::new(),
    })
}

fn failed(error: std::io::Error) -> ProofError {
    ProofError::Trial(error)
}
