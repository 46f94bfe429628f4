//! The folder of a run's checkpoints as a place on some storage: everything that a process needs to write its files
//! there.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::checkpoint_error::CheckpointError;
use crate::disk::Storage;
use crate::step_names::{Found, folder_name, partial_name};

/// A folder and the storage that it is on. All processes of a run name the same one; only the one that commits locks
/// and cleans it.
#[derive(Clone, Debug)]
pub struct CheckpointFolder {
    path: PathBuf,
    storage: Arc<dyn Storage>,
    data: SavedIn,
}

/// Where the data of a checkpoint are. Its manifest, which makes it whole, is in the folder of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SavedIn {
    /// Next to the manifest: their folder has its name from the commit on.
    Disk,
    /// In the memory of hosts: their folders have data alone, under their name from the beginning.
    Memory,
}

impl CheckpointFolder {
    /// The folder at `path`; nothing is written.
    pub fn new(path: &Path, storage: Arc<dyn Storage>) -> CheckpointFolder {
        CheckpointFolder { path: path.to_path_buf(), storage, data: SavedIn::Disk }
    }

    /// The folder at `path` in the memory of a host.
    pub fn in_memory(path: &Path, storage: Arc<dyn Storage>) -> CheckpointFolder {
        CheckpointFolder { path: path.to_path_buf(), storage, data: SavedIn::Memory }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the data are.
    pub fn data(&self) -> SavedIn {
        self.data
    }

    /// The storage of the folder.
    pub(crate) fn storage(&self) -> &dyn Storage {
        &*self.storage
    }

    /// The committed checkpoint after `steps` steps.
    pub(crate) fn committed(&self, steps: u32) -> PathBuf {
        self.path.join(folder_name(steps))
    }

    /// The same while it is written.
    pub(crate) fn partial(&self, steps: u32) -> PathBuf {
        match self.data {
            SavedIn::Disk => self.path.join(partial_name(steps)),
            SavedIn::Memory => self.committed(steps),
        }
    }

    /// Makes that folder, if no other process has made it.
    pub(crate) fn make_partial(&self, steps: u32) -> Result<(), CheckpointError> {
        let path = self.partial(steps);
        match self.storage.create_folder(&path) {
            Err(reason) if reason.kind() != ErrorKind::AlreadyExists => Err(CheckpointError::Write { path, reason }),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Renames a damaged checkpoint, so that no run resumes from it and people can look at it. Returns its new path.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn set_aside(&self, found: &Found) -> Result<PathBuf, CheckpointError> {
        let name = format!("damaged-{}", folder_name(found.steps));
        let free = (0..).map(|number| match number {
            0 => self.path.join(&name),
            number => self.path.join(format!("{name}-{number}")),
        });
        let aside = free.into_iter().find(|path| !path.exists()).unwrap_or_else(|| self.path.join(&name));
        let renamed = self.storage.rename(&found.path, &aside);
        renamed.map_err(|reason| CheckpointError::Write { path: found.path.clone(), reason })?;
        Ok(aside)
    }
}
