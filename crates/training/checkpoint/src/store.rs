//! The folder of a run's checkpoints: which are committed, who may write there, and which are kept.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::checkpoint::{Checkpoint, read_manifest};
use crate::checkpoint_error::CheckpointError;
use crate::checkpoint_folder::{CheckpointFolder, SavedIn};
use crate::commit::{Committed, commit, replace_manifest};
use crate::disk::Storage;
use crate::holds::Holds;
use crate::lock::FolderLock;
use crate::manifest::MANIFEST;
use crate::process_pieces::ProcessPieces;
use crate::retention::{Retention, Saved};
use crate::step_names::{Found, PREFIX, folder_name, named_steps};

/// The committed checkpoints in `folder`, the newest first; none where there is no such folder. Names and the presence
/// of a manifest are trusted here; [`Checkpoint::open`] looks inside.
///
/// # Errors
/// A folder that cannot be read.
pub fn committed(folder: &Path) -> Result<Vec<Found>, CheckpointError> {
    let mut found = named(folder)?;
    found.retain(|found| found.path.join(MANIFEST).is_file());
    Ok(found)
}

/// Folders in `folder` with the name of a checkpoint and without a manifest, the newest first: a copy that did not end,
/// or a checkpoint that lost its manifest.
///
/// # Errors
/// A folder that cannot be read.
pub fn unfinished(folder: &Path) -> Result<Vec<Found>, CheckpointError> {
    let mut found = named(folder)?;
    found.retain(|found| found.path.is_dir() && !found.path.join(MANIFEST).exists());
    Ok(found)
}

/// All that has the name of a checkpoint in `folder`, committed or not, the newest first: it is in the way of a run
/// that writes checkpoints of the same steps.
///
/// # Errors
/// A folder that cannot be read.
pub fn named(folder: &Path) -> Result<Vec<Found>, CheckpointError> {
    let failed = |reason| CheckpointError::Read { path: folder.to_path_buf(), reason };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(reason) if reason.kind() == std::io::ErrorKind::NotFound => return Ok(vec![]),
        Err(reason) => return Err(failed(reason)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        if let Some(steps) = named_steps(&path) {
            found.push(Found { path, steps });
        }
    }
    found.sort_by_key(|found| std::cmp::Reverse(found.steps));
    Ok(found)
}

/// The result of saving a checkpoint.
#[derive(Debug)]
pub struct Finished {
    /// The checkpoint, or why there is none.
    pub outcome: Result<Committed, CheckpointError>,
    /// Why older ones that were to be discarded are still there.
    pub not_retired: Option<CheckpointError>,
}

/// The folder of a run's checkpoints in the hands of the one process that commits there, cleans it and removes what no
/// rule keeps.
#[derive(Debug)]
pub struct Store {
    folder: CheckpointFolder,
    retention: Retention,
    data: SavedIn,
    holds: Arc<Holds>,
    _lock: FolderLock,
}

impl Store {
    /// Makes the folder, if it is not there, takes its lock, and removes what a process that was killed was about to
    /// write or to remove.
    ///
    /// # Errors
    /// Another run that writes there, or a folder that cannot be written.
    pub fn open(folder: &Path, storage: Arc<dyn Storage>, retention: Retention) -> Result<Store, CheckpointError> {
        Store::open_for(folder, storage, retention, SavedIn::Disk)
    }

    /// Returns the same as [`Store::open`], for checkpoints that have their data in `data`.
    ///
    /// # Errors
    /// The errors of [`Store::open`].
    pub fn open_for(
        folder: &Path,
        storage: Arc<dyn Storage>,
        retention: Retention,
        data: SavedIn,
    ) -> Result<Store, CheckpointError> {
        fs::create_dir_all(folder).map_err(|reason| CheckpointError::Write { path: folder.to_path_buf(), reason })?;
        let lock = FolderLock::take(folder)?;
        let folder = CheckpointFolder::new(folder, storage);
        let store = Store { folder, retention, data, holds: Arc::default(), _lock: lock };
        store.clean()?;
        Ok(store)
    }

    /// The place that all processes of the run write to.
    pub fn folder(&self) -> &CheckpointFolder {
        &self.folder
    }

    /// The rules that discard checkpoints.
    pub fn retention(&self) -> Retention {
        self.retention
    }

    /// Checkpoints that stay for now, whatever the rules say.
    pub fn holds(&self) -> Arc<Holds> {
        Arc::clone(&self.holds)
    }

    /// Commits the pieces of all processes and removes the checkpoints that no rule keeps; what was not committed is
    /// removed.
    pub(crate) fn commit(&self, processes: Vec<ProcessPieces>) -> Finished {
        let steps = processes.first().map(ProcessPieces::steps);
        // A folder on the disk was made for the data.
        let alone = steps.filter(|_| self.data == SavedIn::Memory);
        let made = alone.map_or(Ok(()), |steps| self.folder.make_partial(steps));
        let outcome = made.and_then(|()| commit(&self.folder, processes));
        let not_retired = match &outcome {
            Ok(_) => self.retire().err(),
            Err(_) => {
                // If it cannot be removed, the next run that writes here removes it.
                let _ = steps.map(|steps| self.folder.storage().remove_folder(&self.folder.partial(steps)));
                None
            }
        };
        Finished { outcome, not_retired }
    }

    /// Writes the held-out loss into the manifest of the checkpoint after `steps` steps, and removes the checkpoints
    /// that no rule keeps now. Returns whether there is such a checkpoint.
    pub(crate) fn add_held_out_loss(&self, steps: u32, held_out_loss: f64) -> Result<bool, CheckpointError> {
        let path = self.folder.committed(steps);
        if !path.join(MANIFEST).is_file() {
            return Ok(false);
        }
        let mut manifest = read_manifest(&path)?;
        manifest.state.held_out_loss = Some(held_out_loss);
        replace_manifest(&self.folder, &manifest)?;
        // The next commit reports a folder that cannot be removed.
        let _ = self.retire();
        Ok(true)
    }

    /// Removes what was not committed, or not removed to the end.
    fn clean(&self) -> Result<(), CheckpointError> {
        let failed = |reason| CheckpointError::Write { path: self.folder.path().to_path_buf(), reason };
        for entry in fs::read_dir(self.folder.path()).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            if name.starts_with(&format!(".{PREFIX}")) {
                self.folder.storage().remove_folder(&path).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Removes the checkpoints that the rules discard and nobody holds. One whose manifest cannot be read is neither
    /// counted nor removed.
    ///
    /// # Errors
    /// A folder that cannot be read or written; what was kept is still there.
    pub fn retire(&self) -> Result<(), CheckpointError> {
        let found = committed(self.folder.path())?;
        let saved = |found: &Found| {
            let held_out_loss = Checkpoint::open_in(&found.path, self.data).ok()?.state().held_out_loss;
            Some(Saved { steps: found.steps, held_out_loss })
        };
        let saved: Vec<Saved> = found.iter().filter_map(saved).collect();
        let given_up = self.retention.given_up(&saved);
        let is_discarded = |found: &&Found| given_up.contains(&found.steps) && !self.holds.contains(found.steps);
        found.iter().filter(is_discarded).try_for_each(|found| self.remove(found))
    }

    /// Removes all checkpoints, those of an earlier run, and what else has the name of one.
    ///
    /// # Errors
    /// A folder that cannot be read or written.
    pub fn clear(&self) -> Result<(), CheckpointError> {
        named(self.folder.path())?.iter().try_for_each(|found| self.remove(found))
    }

    /// Removes the checkpoints after more than `steps` steps: those of a run that continues from an earlier one.
    ///
    /// # Errors
    /// A folder that cannot be read or written.
    pub fn clear_after(&self, steps: u32) -> Result<(), CheckpointError> {
        let found = committed(self.folder.path())?;
        found.iter().filter(|found| found.steps > steps).try_for_each(|found| self.remove(found))
    }

    /// First the name goes, so that what is removed in part is nothing.
    fn remove(&self, found: &Found) -> Result<(), CheckpointError> {
        let removed = self.folder.path().join(format!(".{}.removed", folder_name(found.steps)));
        let gone = self
            .folder
            .storage()
            .rename(&found.path, &removed)
            .and_then(|()| self.folder.storage().remove_folder(&removed));
        gone.map_err(|reason| CheckpointError::Write { path: found.path.clone(), reason })
    }
}

impl Drop for Store {
    /// A run that failed leaves nothing of a checkpoint that some rank did not finish.
    fn drop(&mut self) {
        // If it cannot be removed, the next run that writes here removes it.
        let _ = self.clean();
    }
}
