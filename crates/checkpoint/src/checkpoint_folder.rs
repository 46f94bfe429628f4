//! The folder of a run's checkpoints as a place on some storage: everything that a process needs to write its files there.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::Storage;
use crate::store::{folder_name, partial_name};

/// A folder and the storage that it is on. All processes of a run name the same one; only the one that commits locks and cleans it.
#[derive(Clone, Debug)]
pub struct CheckpointFolder {
    path: PathBuf,
    storage: Arc<dyn Storage>,
}

impl CheckpointFolder {
    /// The folder at `path`; nothing is written.
    pub fn new(path: &Path, storage: Arc<dyn Storage>) -> CheckpointFolder {
        CheckpointFolder { path: path.to_path_buf(), storage }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
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
        self.path.join(partial_name(steps))
    }
}
