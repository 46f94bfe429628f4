//! The checkpoints from which a run may continue, those on the disk and those in the memory of hosts.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use checkpoint::{Checkpoint, CheckpointError, CheckpointFolder, Disk, Found, SavedIn, committed, unfinished};

use crate::failure::Failure;
use crate::messages::stderr::tell;
use crate::peer_memory::Beginning;
use crate::places::names::{CHECKPOINTS, MEMORY};
use crate::places::unfinished::line;

/// A checkpoint whose manifest is sound.
pub struct Candidate {
    /// Its folder.
    pub found: Found,
    /// Where its data are.
    pub data: SavedIn,
    /// To read it; data in memory are still to be found.
    pub checkpoint: Checkpoint,
}

/// Those that were not tried yet, the newest first.
pub struct Candidates {
    run: PathBuf,
    left: VecDeque<(Found, SavedIn)>,
    /// Those that were found damaged.
    pub damaged: Vec<(Found, SavedIn)>,
}

impl Candidates {
    /// All of the run in the folder `run`. Those without a manifest count as damaged, and process 0 names them: each
    /// would be in the way of the checkpoint after as many steps.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn of(run: &Path, is_first: bool) -> Result<Candidates, Failure> {
        let mut left = vec![];
        for data in [SavedIn::Disk, SavedIn::Memory] {
            left.extend(committed(&folder_of(run, data))?.into_iter().map(|found| (found, data)));
        }
        // Of two after the same step the one on the disk comes first: the sort is stable.
        left.sort_by_key(|(found, _)| std::cmp::Reverse(found.steps));
        let unfinished = unfinished(&run.join(CHECKPOINTS))?;
        if is_first {
            unfinished.iter().for_each(|found| tell(&line(found)));
        }
        let damaged = unfinished.into_iter().map(|found| (found, SavedIn::Disk)).collect();
        Ok(Candidates { run: run.to_path_buf(), left: left.into(), damaged })
    }

    /// How the run begins from one of them.
    pub fn beginning(&self) -> Beginning {
        let is_any_in_memory = self.left.iter().any(|(_, data)| *data == SavedIn::Memory);
        if is_any_in_memory { Beginning::FromMemory } else { Beginning::FromDisk }
    }

    /// The next one whose manifest is sound. Damaged ones are kept for later, and process 0 names them.
    ///
    /// # Errors
    /// A checkpoint of a later format.
    pub fn next(&mut self, is_first: bool) -> Result<Option<Candidate>, Failure> {
        while let Some((found, data)) = self.left.pop_front() {
            match Checkpoint::open_in(&found.path, data) {
                Ok(checkpoint) => return Ok(Some(Candidate { found, data, checkpoint })),
                Err(error) if error.is_damage() => {
                    if is_first {
                        tell(&format!("{error}\n"));
                    }
                    self.damaged.push((found, data));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// That none is left.
    pub fn none(&self) -> Failure {
        let folder = self.run.join(CHECKPOINTS);
        match self.damaged.is_empty() {
            true => CheckpointError::None { folder }.into(),
            false => Failure::Input(format!("no valid checkpoint in {}", folder.display())),
        }
    }
}

/// Renames a damaged checkpoint of the run in the folder `run`, so that no run resumes from it. Returns its new path.
///
/// # Errors
/// A folder that cannot be written.
pub fn set_aside(run: &Path, (found, data): &(Found, SavedIn)) -> Result<PathBuf, CheckpointError> {
    CheckpointFolder::new(&folder_of(run, *data), Arc::new(Disk)).set_aside(found)
}

/// The folder of manifests of checkpoints with their data in `data`.
fn folder_of(run: &Path, data: SavedIn) -> PathBuf {
    run.join(match data {
        SavedIn::Disk => CHECKPOINTS,
        SavedIn::Memory => MEMORY,
    })
}
