//! R6, R7 and R14: disks that fill up, folders that vanish, and runs that are told to end.

use std::fs;
use std::sync::Arc;

use checkpoint::Disk;
use train::Wish;

use super::reference::{newest_is_sound, run_saved};
use super::{Reference, Shown, TrialFolder, draw};
use crate::faulty_disk::{Fault, FaultyDisk};
use crate::runner::ProofError;

/// Disks that are full after a random number of bytes, and in every second trial have room again for the last checkpoint.
///
/// # Errors
/// A run that fails.
pub fn full_disks(reference: &Reference, trials: usize) -> Result<Shown, ProofError> {
    let folder = TrialFolder::new("full").map_err(ProofError::Trial)?;
    let whole = FaultyDisk::new(Fault::Full, FaultyDisk::PLENTY);
    run_saved(Arc::new(whole.clone()), folder.path(), |_| Wish::Continue)?;
    let all = FaultyDisk::PLENTY - whole.left();
    let (mut failures, mut warnings) = (Vec::new(), 0);
    for number in 0..trials {
        folder.clear().map_err(ProofError::Trial)?;
        let [place, freed, _] = draw(6, number);
        let disk = FaultyDisk::new(Fault::Full, place as u64 % (all * 3 / 4));
        let is_freed = freed % 2 == 0;
        // The last step begins when someone has made room. What the step before saves may then find it, too.
        let wish = |done: u32| {
            if is_freed && done + 1 == reference.steps() {
                disk.set_left(FaultyDisk::PLENTY);
            }
            Wish::Continue
        };
        let saved = run_saved(Arc::new(disk.clone()), folder.path(), wish)?;
        warnings += saved.ends.iter().filter(|(_, failure)| failure.is_some()).count();
        let is_told = |steps: u32| saved.ends.iter().any(|(of, failure)| *of == steps && failure.is_some() != is_freed);
        let held = reference.same(&saved.outcome, 0).and_then(|()| match newest_is_sound(folder.path())? {
            newest if is_freed == (newest == reference.steps()) => Ok(()),
            newest => Err(format!("the newest checkpoint is after step {newest}")),
        });
        match held {
            Ok(()) if is_told(reference.steps()) && saved.ends.len() == reference.steps() as usize => {}
            Ok(()) => failures.push(format!("trial {number}: {:?}", saved.ends)),
            Err(error) => failures.push(format!("trial {number}: {error}")),
        }
    }
    Ok(Shown {
        number: "R6",
        fault: "the disk is full after a random byte; in half of the trials it has room again in the end",
        demand: "training is the same, every failed save is told, what was committed is sound",
        trials,
        failures,
        seen: format!("{warnings} failed saves told"),
    })
}

/// The folder of checkpoints is removed while the run goes on.
///
/// # Errors
/// A run that fails.
pub fn vanished_folders(reference: &Reference, trials: usize) -> Result<Shown, ProofError> {
    let folder = TrialFolder::new("vanished").map_err(ProofError::Trial)?;
    let (mut failures, mut warnings) = (Vec::new(), 0);
    for number in 0..trials {
        folder.clear().map_err(ProofError::Trial)?;
        let gone_after = 1 + draw(7, number)[0] as u32 % (reference.steps() - 2);
        let wish = |done: u32| {
            if done == gone_after {
                // What is just being written there may be in the way of one removal.
                while folder.path().exists() && fs::remove_dir_all(folder.path()).is_err() {}
            }
            Wish::Continue
        };
        let saved = run_saved(Arc::new(Disk), folder.path(), wish)?;
        let last = saved.ends.last().and_then(|(_, failure)| failure.clone());
        warnings += saved.ends.iter().filter(|(_, failure)| failure.is_some()).count();
        match (reference.same(&saved.outcome, 0), last) {
            (Ok(()), Some(_)) => {}
            (Ok(()), None) => failures.push(format!("trial {number}: no failure was told")),
            (Err(error), _) => failures.push(format!("trial {number}: {error}")),
        }
    }
    Ok(Shown {
        number: "R7",
        fault: "the folder of checkpoints vanishes after a random step",
        demand: "training is the same, every failed save is told",
        trials,
        failures,
        seen: format!("{warnings} failed saves told"),
    })
}

/// The run is told to end in a random step, as a signal does it, and goes on.
///
/// # Errors
/// A run that fails.
pub fn stops(reference: &Reference, trials: usize) -> Result<Shown, ProofError> {
    let folder = TrialFolder::new("stops").map_err(ProofError::Trial)?;
    let mut failures = Vec::new();
    for number in 0..trials {
        folder.clear().map_err(ProofError::Trial)?;
        let in_step = draw(14, number)[0] as u32 % (reference.steps() - 1);
        let wish = |done: u32| if done == in_step { Wish::Stop } else { Wish::Continue };
        run_saved(Arc::new(Disk), folder.path(), wish)?;
        let held = newest_is_sound(folder.path()).and_then(|newest| match newest == in_step + 1 {
            true => reference.completes(folder.path()),
            false => Err(format!("the newest checkpoint is after step {newest}")),
        });
        failures.extend(held.err().map(|error| format!("told in step {}: {error}", in_step + 1)));
    }
    Ok(Shown {
        number: "R14",
        fault: "the run is told to end in a random step",
        demand: "a checkpoint of that step; the run that goes on is the same",
        trials,
        failures,
        seen: "the signals themselves: `crates/cli/tests/resume.rs`".into(),
    })
}
