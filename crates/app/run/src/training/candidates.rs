//! The checkpoints from which a run may continue, those on the disk and those in the memory of hosts.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use checkpoint::{Checkpoint, CheckpointError, CheckpointFolder, Disk, Found, committed, unfinished};

use crate::failure::Failure;
use crate::messages::stderr::tell;
use crate::peer_memory::{IsFound, MemoryFiles};
use crate::places::names::{CHECKPOINTS, MEMORY};
use crate::places::unfinished::line;

/// Where the data of a checkpoint are.
#[derive(Clone, Debug)]
pub enum DataPlace {
    /// Next to its manifest.
    Disk,
    /// In the memory of hosts.
    Memory(MemoryFiles),
}

/// A checkpoint whose manifest is sound.
pub struct Candidate {
    /// Its folder.
    pub found: Found,
    /// Where its data are.
    pub place: DataPlace,
    /// To read it.
    pub checkpoint: Checkpoint,
}

/// Those that were not tried yet, the newest first.
pub struct Candidates {
    run: PathBuf,
    left: VecDeque<(Found, DataPlace)>,
    /// Those that were found damaged.
    pub damaged: Vec<(Found, DataPlace)>,
}

impl Candidates {
    /// All of the run in the folder `run`. Those without a manifest count as damaged, and process 0 names them: each
    /// would be in the way of the checkpoint after as many steps.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn of(run: &Path, is_first: bool) -> Result<Candidates, Failure> {
        let on_disk = committed(&run.join(CHECKPOINTS))?.into_iter().map(|found| (found, DataPlace::Disk));
        let in_memory = committed(&run.join(MEMORY))?.into_iter();
        let in_memory = in_memory.map(|found| (found, DataPlace::Memory(MemoryFiles::default())));
        let mut left: Vec<(Found, DataPlace)> = on_disk.chain(in_memory).collect();
        // Of two after the same step the one on the disk comes first: the sort is stable.
        left.sort_by_key(|(found, _)| std::cmp::Reverse(found.steps));
        let unfinished = unfinished(&run.join(CHECKPOINTS))?;
        if is_first {
            unfinished.iter().for_each(|found| tell(&line(found)));
        }
        let damaged = unfinished.into_iter().map(|found| (found, DataPlace::Disk)).collect();
        Ok(Candidates { run: run.to_path_buf(), left: left.into(), damaged })
    }

    /// Whether any is in memory.
    pub fn in_memory(&self) -> IsFound {
        let is_in_memory = |(_, place): &(Found, DataPlace)| matches!(place, DataPlace::Memory(_));
        if self.left.iter().any(is_in_memory) { IsFound::Yes } else { IsFound::No }
    }

    /// The next one whose manifest is sound. Damaged ones are kept for later, and process 0 names them.
    ///
    /// # Errors
    /// A checkpoint of a later format.
    pub fn next(&mut self, is_first: bool) -> Result<Option<Candidate>, Failure> {
        while let Some((found, place)) = self.left.pop_front() {
            let opened = match &place {
                DataPlace::Disk => Checkpoint::open(&found.path),
                DataPlace::Memory(files) => Checkpoint::open_with(&found.path, Box::new(files.clone())),
            };
            match opened {
                Ok(checkpoint) => return Ok(Some(Candidate { found, place, checkpoint })),
                Err(error) if error.is_damage() => {
                    if is_first {
                        tell(&format!("{error}\n"));
                    }
                    self.damaged.push((found, place));
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
pub fn set_aside(run: &Path, (found, place): &(Found, DataPlace)) -> Result<PathBuf, CheckpointError> {
    let folder = match place {
        DataPlace::Disk => run.join(CHECKPOINTS),
        DataPlace::Memory(_) => run.join(MEMORY),
    };
    CheckpointFolder::new(&folder, Arc::new(Disk)).set_aside(found)
}
