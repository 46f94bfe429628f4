//! The folder of a run's checkpoints as a place on some storage: everything that a process needs to write its files
//! there.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::checkpoint_error::CheckpointError;
use crate::disk::Storage;
use crate::step_names::{Found, folder_name, partial_name};

/// A folder and the storage that it is on. All processes of a run name the same one; only the one that commits locks
/// and cleans it.
#[derive(Clone, Debug)]
pub struct CheckpointFolder {
    path: PathBuf,
    storage: Arc<dyn Storage>,
    commit: CommitPlace,
}

/// Where the manifests of a folder's checkpoints are, which make them whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CommitPlace {
    /// Next to the data: a folder has its name from the commit on.
    Here,
    /// In another folder: this one has data alone, under their name from the beginning.
    Elsewhere,
}

impl CheckpointFolder {
    /// The folder at `path`; nothing is written.
    pub fn new(path: &Path, storage: Arc<dyn Storage>) -> CheckpointFolder {
        CheckpointFolder { path: path.to_path_buf(), storage, commit: CommitPlace::Here }
    }

    /// The folder at `path` for data whose manifests are in another folder.
    pub fn of_data(path: &Path, storage: Arc<dyn Storage>) -> CheckpointFolder {
        CheckpointFolder { path: path.to_path_buf(), storage, commit: CommitPlace::Elsewhere }
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
        match self.commit {
            CommitPlace::Here => self.path.join(partial_name(steps)),
            CommitPlace::Elsewhere => self.committed(steps),
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
