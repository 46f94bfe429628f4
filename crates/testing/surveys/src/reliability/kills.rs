//! R3 and R19: processes that are killed, in the middle of a save or while they hold a lock.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use checkpoint::CheckpointError;
use prove::ProofError;
use testkit::faulty_disk::{Fault, FaultyDisk};
use train::StopRequest;

use super::child::{Child, NotKilled, Report, Role, open};
use super::kept::{Counts, Kept, Row, one_of_each, row};
use super::reference::{newest_is_sound, run_saved};
use super::{Reference, Shown, TrialFolder, draw};

/// Makes the command of a child of some role.
pub type StartChild<'a> = dyn Fn(&Role) -> std::io::Result<Command> + 'a;

/// How often a trial is repeated whose child had ended before it was killed.
const MAX_REPEATS: usize = 2;

/// Children that are killed at random bytes of a run that saves after each step. A child reports its steps; it is
/// killed when it reports that it waits in the middle of a save, and must die of that kill after one step at least. The
/// newest checkpoint must load, the steps before the kill and after the resumption must have the losses of the
/// undisturbed run, and the last weights its bits.
///
/// # Errors
/// A run that fails undisturbed.
pub fn kills(reference: &Reference, trials: usize, child: &StartChild<'_>, kept: &Kept) -> Result<Shown, ProofError> {
    let folder = TrialFolder::new("kills").map_err(ProofError::Trial)?;
    let whole = FaultyDisk::new(Fault::Full, FaultyDisk::PLENTY);
    run_saved(Arc::new(whole.clone()), folder.path(), |_| StopRequest::None)?;
    let all = FaultyDisk::PLENTY - whole.left();
    let row = row(kept, "R3", trials, |number| {
        let bytes = draw(3, number)[0] as u64 % all;
        let role = Role::Train { folder: folder.path().into(), bytes };
        let trial = || {
            folder.clear().map_err(|error| NotKilled::Failed(error.to_string()))?;
            let command = child(&role).map_err(|error| NotKilled::Failed(error.to_string()))?;
            killed_in_a_save(command)
        };
        repeated(trial)
            .and_then(|(killed, ended_before)| Ok((survived(reference, folder.path(), &killed)?, ended_before)))
            .map(|(counts, ended_before)| {
                counts.into_iter().chain([(ENDED_BEFORE.to_string(), ended_before)]).collect()
            })
            .map_err(|error| format!("killed after {bytes} of {all} bytes: {error}"))
    });
    Ok(Shown {
        number: "R3",
        fault: "the process is killed (SIGKILL) at a random byte of its saves",
        demand: "the newest commit loads; all losses and the last weights are the same",
        trials,
        seen: seen(&row),
        failures: row.failures,
    })
}

const KILLED: &str = "killed";
const ENDED_BEFORE: &str = "ended before";

fn seen(row: &Row) -> String {
    format!(
        "{} children died of the kill, {} had ended before and were repeated. Trials by steps done: {}; by what the \
         save was about to do: {}; by step of the newest commit: {}",
        row.count(KILLED),
        row.count(ENDED_BEFORE),
        row.list("steps "),
        row.list("access "),
        row.list("commit "),
    )
}

/// Repeats a trial whose child had ended before the kill, and counts how often.
fn repeated<T>(mut trial: impl FnMut() -> Result<T, NotKilled>) -> Result<(T, usize), String> {
    for ended_before in 0.. {
        match trial() {
            Ok(killed) => return Ok((killed, ended_before)),
            Err(NotKilled::Failed(error)) => return Err(error),
            Err(NotKilled::Ended(error)) if ended_before == MAX_REPEATS => {
                return Err(format!("{error}, in each of {} trials", MAX_REPEATS + 1));
            }
            Err(NotKilled::Ended(_)) => {}
        }
    }
    Err("no trial".into())
}

/// A child that trained and died of a kill.
struct Killed {
    /// Losses of the steps that it had reported.
    losses: Vec<f64>,
    /// The access that its save was about to make.
    access: String,
}

/// Follows a child until it waits in the middle of a save, and kills it there.
fn killed_in_a_save(command: Command) -> Result<Killed, NotKilled> {
    let mut child = Child::start(command).map_err(|error| NotKilled::Failed(error.to_string()))?;
    let (mut losses, mut halted) = (Vec::new(), None);
    // A save may halt before its step is reported; the child trains on, so the report must come.
    let access = loop {
        match child.next()? {
            Some(Report::Step { loss }) => losses.push(loss),
            Some(Report::Halted { access }) => halted = Some(access),
            Some(Report::Held) => {}
            None => return Err(child.ended()),
        }
        if let (Some(access), false) = (&halted, losses.is_empty()) {
            break access.clone();
        }
    };
    child.kill()?;
    // It may have begun the next step until then.
    while let Some(report) = child.next()? {
        if let Report::Step { loss } = report {
            losses.push(loss);
        }
    }
    Ok(Killed { losses, access })
}

/// Whether all steps, before the kill and after the resumption, are those of the undisturbed run.
fn survived(reference: &Reference, folder: &Path, killed: &Killed) -> Result<Counts, String> {
    let Killed { losses, access } = killed;
    reference.begins_with(losses)?;
    let committed = newest_is_sound(folder)?;
    if (losses.len() as u32) < committed {
        return Err(format!("step {committed} is committed, and the child reported {} steps", losses.len()));
    }
    reference.completes(folder)?;
    let (steps, commit) = (format!("steps {}", losses.len()), format!("commit {committed}"));
    Ok(one_of_each([KILLED.into(), steps, commit, format!("access {access}")]))
}

/// A second run in a folder is refused while a child has it, and not when the child was killed.
///
/// # Errors
/// No room for trials.
pub fn locks(trials: usize, child: &StartChild<'_>, kept: &Kept) -> Result<Shown, ProofError> {
    let folder = TrialFolder::new("locks").map_err(ProofError::Trial)?;
    let role = Role::Hold { folder: folder.path().into() };
    let row = row(kept, "R19", trials, |_| {
        let trial = || {
            let command = child(&role).map_err(|error| NotKilled::Failed(error.to_string()))?;
            killed_with_the_lock(command, folder.path())
        };
        let (refused, ended_before) = repeated(trial)?;
        let recovered = open(folder.path()).is_ok();
        match refused && recovered {
            true => Ok(Counts::from([(KILLED.into(), 1), (ENDED_BEFORE.into(), ended_before)])),
            false => Err(format!("refused {refused}, recovered {recovered}")),
        }
    });
    Ok(Shown {
        number: "R19",
        fault: "two runs in one folder; the first is killed",
        demand: "the second is refused while the first lives, and only then",
        trials,
        seen: format!(
            "{} children died of the kill, {} had ended before and were repeated",
            row.count(KILLED),
            row.count(ENDED_BEFORE)
        ),
        failures: row.failures,
    })
}

/// Waits until a child has the lock of `folder`, and kills it. Whether a second run was refused before.
fn killed_with_the_lock(command: Command, folder: &Path) -> Result<bool, NotKilled> {
    let mut child = Child::start(command).map_err(|error| NotKilled::Failed(error.to_string()))?;
    loop {
        match child.next()? {
            Some(Report::Held) => break,
            Some(Report::Step { .. } | Report::Halted { .. }) => {}
            None => return Err(child.ended()),
        }
    }
    let refused = matches!(open(folder), Err(CheckpointError::Locked { .. }));
    child.kill()?;
    Ok(refused)
}
