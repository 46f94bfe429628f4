//! The folder of a run's checkpoints: which are committed, who may write there, and which are kept.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::checkpoint::Checkpoint;
use crate::checkpoint_error::CheckpointError;
use crate::checkpoint_writer::{CheckpointWriter, Committed};
use crate::disk::Storage;
use crate::lock::FolderLock;
use crate::manifest::{MANIFEST, RunState};
use crate::piece_file::{PieceEntry, PieceFile};
use crate::retention::{Retention, Saved};

/// The file that names the newest checkpoint.
pub const LATEST: &str = "latest";

const PREFIX: &str = "step-";

/// The name of the checkpoint after `steps` steps.
pub(crate) fn folder_name(steps: u32) -> String {
    format!("{PREFIX}{steps:08}")
}

/// Its name while it is written.
pub(crate) fn partial_name(steps: u32) -> String {
    format!(".{}.partial", folder_name(steps))
}

/// The steps that the name of a checkpoint's folder tells, where it is such a name.
pub(crate) fn named_steps(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.strip_prefix(PREFIX)?.parse().ok()
}

/// A checkpoint that was committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its folder.
    pub path: PathBuf,
    /// Steps that were done.
    pub steps: u32,
}

/// The committed checkpoints in `folder`, the newest first; none where there is no such folder. What their names and the presence of a
/// manifest say is believed here; [`Checkpoint::open`] looks inside.
///
/// # Errors
/// A folder that cannot be read.
pub fn committed(folder: &Path) -> Result<Vec<Found>, CheckpointError> {
    let failed = |reason| CheckpointError::Read { path: folder.to_path_buf(), reason };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(reason) if reason.kind() == std::io::ErrorKind::NotFound => return Ok(vec![]),
        Err(reason) => return Err(failed(reason)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        if let Some(steps) = named_steps(&path).filter(|_| path.join(MANIFEST).is_file()) {
            found.push(Found { path, steps });
        }
    }
    found.sort_by_key(|found| std::cmp::Reverse(found.steps));
    Ok(found)
}

/// What became of a checkpoint.
#[derive(Debug)]
pub struct Finished {
    /// The checkpoint, or why there is none.
    pub outcome: Result<Committed, CheckpointError>,
    /// Why older ones that were to be given up are still there.
    pub not_retired: Option<CheckpointError>,
}

/// Writes checkpoints into a folder, alone.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    storage: Arc<dyn Storage>,
    retention: Retention,
    /// Those in the making, by steps, from the first rank that begins to the last one that is done: a rank may begin the next one before another has
    /// begun this one.
    current: Mutex<BTreeMap<u32, Arc<CheckpointWriter>>>,
    _lock: FolderLock,
}

impl Store {
    /// Makes the folder, if it is not there, takes its lock, and removes what a process that was killed was about to write or to remove.
    ///
    /// # Errors
    /// Another run that writes there, or a folder that cannot be written.
    pub fn open(folder: &Path, storage: Arc<dyn Storage>, retention: Retention) -> Result<Store, CheckpointError> {
        let failed = |reason| CheckpointError::Write { path: folder.to_path_buf(), reason };
        fs::create_dir_all(folder).map_err(failed)?;
        let lock = FolderLock::take(folder)?;
        for entry in fs::read_dir(folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            if name.starts_with(&format!(".{PREFIX}")) {
                storage.remove_folder(&path).map_err(failed)?;
            }
        }
        Ok(Store { folder: folder.to_path_buf(), storage, retention, current: Mutex::default(), _lock: lock })
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The checkpoint of `state` in the making, which has one file for each of `num_files` ranks. All ranks get the same one.
    pub fn writer(&self, state: &RunState, num_files: usize) -> Arc<CheckpointWriter> {
        let begin = || {
            let storage = Arc::clone(&self.storage);
            Arc::new(CheckpointWriter::begin(&self.folder, storage, state.clone(), num_files))
        };
        Arc::clone(self.current().entry(state.steps).or_insert_with(begin))
    }

    /// Takes a rank's file of `writer`, or why there is none. The last of all ranks commits, removes what is given up, and learns what became of
    /// it; the others are told nothing.
    pub fn finish(
        &self,
        writer: &CheckpointWriter,
        file: Result<Option<PieceFile>, CheckpointError>,
        entries: &[PieceEntry],
    ) -> Option<Finished> {
        let outcome = writer.finish(file, entries)?;
        self.current().remove(&writer.steps());
        let not_retired = outcome.as_ref().ok().and_then(|_| self.retire().err());
        Some(Finished { outcome, not_retired })
    }

    fn current(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<CheckpointWriter>>> {
        // Whoever panicked while it held the lock had nothing to change but the whole.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the checkpoints that the rules give up. One whose manifest cannot be read neither counts nor is removed.
    ///
    /// # Errors
    /// A folder that cannot be read or written; what was kept is still there.
    fn retire(&self) -> Result<(), CheckpointError> {
        let found = committed(&self.folder)?;
        let saved = |found: &Found| {
            let checkpoint = Checkpoint::open(&found.path).ok()?;
            Some(Saved { steps: found.steps, held_out_loss: checkpoint.state().held_out_loss })
        };
        let saved: Vec<Saved> = found.iter().filter_map(saved).collect();
        let given_up = self.retention.given_up(&saved);
        found.iter().filter(|found| given_up.contains(&found.steps)).try_for_each(|found| self.remove(found))
    }

    /// Removes all checkpoints: those of an earlier run.
    ///
    /// # Errors
    /// A folder that cannot be read or written.
    pub fn clear(&self) -> Result<(), CheckpointError> {
        committed(&self.folder)?.iter().try_for_each(|found| self.remove(found))
    }

    /// Takes a damaged checkpoint out of the row of those that a run goes on from, and leaves it for people to look at.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn set_aside(&self, found: &Found) -> Result<PathBuf, CheckpointError> {
        let name = format!("damaged-{}", folder_name(found.steps));
        let free = (0..).map(|number| match number {
            0 => self.folder.join(&name),
            number => self.folder.join(format!("{name}-{number}")),
        });
        let aside = free.into_iter().find(|path| !path.exists()).unwrap_or_else(|| self.folder.join(&name));
        let renamed = self.storage.rename(&found.path, &aside);
        renamed.map_err(|reason| CheckpointError::Write { path: found.path.clone(), reason })?;
        Ok(aside)
    }

    /// First the name goes, so that what is removed in part is nothing.
    fn remove(&self, found: &Found) -> Result<(), CheckpointError> {
        let removed = self.folder.join(format!(".{}.removed", folder_name(found.steps)));
        let gone = self.storage.rename(&found.path, &removed).and_then(|()| self.storage.remove_folder(&removed));
        gone.map_err(|reason| CheckpointError::Write { path: found.path.clone(), reason })
    }
}
