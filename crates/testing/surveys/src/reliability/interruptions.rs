//! R6, R7 and R14: disks that fill up, folders that vanish, and runs that are asked to end.

use std::fs;
use std::sync::Arc;

use checkpoint::Disk;
use prove::ProofError;
use testkit::faulty_disk::{Fault, FaultyDisk};
use train::StopRequest;

use super::kept::{Counts, Kept, row};
use super::reference::{Saved, newest_is_sound, run_saved};
use super::{Reference, Shown, TrialFolder, draw};

const FAILED_SAVES: &str = "failed saves";

fn failed_saves(saved: &Saved) -> Counts {
    let failed = saved.ends.iter().filter(|(_, failure)| failure.is_some()).count();
    Counts::from([(FAILED_SAVES.to_string(), failed)])
}

/// Disks that are full after a random number of bytes, and in every second trial have room again for the last
/// checkpoint.
///
/// # Errors
/// A run that fails.
pub fn full_disks(reference: &Reference, trials: usize, kept: &Kept) -> Result<Shown, ProofError> {
    let folder = TrialFolder::new("full").map_err(ProofError::Trial)?;
    let whole = FaultyDisk::new(Fault::Full, FaultyDisk::PLENTY);
    run_saved(Arc::new(whole.clone()), folder.path(), |_| StopRequest::None)?;
    let all = FaultyDisk::PLENTY - whole.left();
    let row = row(kept, "R6", trials, |number| {
        folder.clear().map_err(|error| error.to_string())?;
        let [place, freed, _] = draw(6, number);
        let disk = FaultyDisk::new(Fault::Full, place as u64 % (all * 3 / 4));
        let is_freed = freed % 2 == 0;
        // The last step begins when someone has made room. The save of the step before may then find it, too.
        let stop_request = |done: u32| {
            if is_freed && done + 1 == reference.steps() {
                disk.set_left(FaultyDisk::PLENTY);
            }
            StopRequest::None
        };
        let saved =
            run_saved(Arc::new(disk.clone()), folder.path(), stop_request).map_err(|error| error.to_string())?;
        let is_told = |steps: u32| saved.ends.iter().any(|(of, failure)| *of == steps && failure.is_some() != is_freed);
        let held = reference.same(&saved.outcome, 0).and_then(|()| match newest_is_sound(folder.path())? {
            newest if is_freed == (newest == reference.steps()) => Ok(()),
            newest => Err(format!("the newest checkpoint is after step {newest}")),
        });
        held?;
        match is_told(reference.steps()) && saved.ends.len() == reference.steps() as usize {
            true => Ok(failed_saves(&saved)),
            false => Err(format!("{:?}", saved.ends)),
        }
    });
    Ok(Shown {
        number: "R6",
        fault: "the disk is full after a random byte; in half of the trials it has room again in the end",
        demand: "training is the same, every failed save is reported, what was committed is sound",
        trials,
        seen: format!("{} failed saves reported", row.count(FAILED_SAVES)),
        failures: row.failures,
    })
}

/// The folder of checkpoints is removed during the run.
///
/// # Errors
/// A run that fails.
pub fn vanished_folders(reference: &Reference, trials: usize, kept: &Kept) -> Result<Shown, ProofError> {
    let folder = TrialFolder::new("vanished").map_err(ProofError::Trial)?;
    let row = row(kept, "R7", trials, |number| {
        folder.clear().map_err(|error| error.to_string())?;
        let gone_after = 1 + draw(7, number)[0] as u32 % (reference.steps() - 2);
        let stop_request = |done: u32| {
            if done == gone_after {
                // A file that is just being written may prevent one removal.
                while folder.path().exists() && fs::remove_dir_all(folder.path()).is_err() {}
            }
            StopRequest::None
        };
        let saved = run_saved(Arc::new(Disk), folder.path(), stop_request).map_err(|error| error.to_string())?;
        reference.same(&saved.outcome, 0)?;
        match saved.ends.last() {
            Some((_, Some(_))) => Ok(failed_saves(&saved)),
            Some((_, None)) | None => Err("no failure was reported".into()),
        }
    });
    Ok(Shown {
        number: "R7",
        fault: "the folder of checkpoints vanishes after a random step",
        demand: "training is the same, every failed save is reported",
        trials,
        seen: format!("{} failed saves reported", row.count(FAILED_SAVES)),
        failures: row.failures,
    })
}

/// The run is asked to end in a random step, as by a signal, and is resumed.
///
/// # Errors
/// A run that fails.
pub fn stops(reference: &Reference, trials: usize, kept: &Kept) -> Result<Shown, ProofError> {
    let folder = TrialFolder::new("stops").map_err(ProofError::Trial)?;
    let row = row(kept, "R14", trials, |number| {
        folder.clear().map_err(|error| error.to_string())?;
        let in_step = draw(14, number)[0] as u32 % (reference.steps() - 1);
        let stop_request = |done: u32| if done == in_step { StopRequest::Stop } else { StopRequest::None };
        run_saved(Arc::new(Disk), folder.path(), stop_request).map_err(|error| error.to_string())?;
        let held = newest_is_sound(folder.path()).and_then(|newest| match newest == in_step + 1 {
            true => reference.completes(folder.path()),
            false => Err(format!("the newest checkpoint is after step {newest}")),
        });
        held.map(|()| Counts::new()).map_err(|error| format!("asked in step {}: {error}", in_step + 1))
    });
    Ok(Shown {
        number: "R14",
        fault: "the run is asked to end in a random step",
        demand: "a checkpoint of that step; the resumed run is the same",
        trials,
        failures: row.failures,
        seen: "the signals themselves: `crates/app/cli/tests/resume.rs`".into(),
    })
}
