//! The files of a checkpoint as its readers see them: in its folder, or in copies elsewhere.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use files::InputKind;

use crate::checkpoint_error::CheckpointError;
use crate::disk::read_exact_at;
use crate::manifest::{FileRecord, Manifest};

/// The files with the data of a checkpoint, each in one copy or several. Every byte that comes from here is
/// compared with its hash by the reader, which takes the next copy where one is damaged.
pub trait DataFiles: Debug + Send + Sync {
    /// Number of copies of the file `name`.
    fn copies(&self, name: &str) -> usize;

    /// Fills `bytes` from `offset_bytes` of copy number `copy` on.
    ///
    /// # Errors
    /// A copy that cannot be read.
    fn read(&self, name: &str, copy: usize, bytes: &mut [u8], offset_bytes: u64) -> io::Result<()>;

    /// Hears that another copy was read instead of copy number `copy`, and why.
    fn replaced(&self, name: &str, copy: usize, error: &CheckpointError);
}

/// The files of a checkpoint in its own folder.
#[derive(Debug)]
pub(crate) struct FolderFiles {
    folder: PathBuf,
    /// By name; opened when they are first read.
    files: BTreeMap<String, OnceLock<File>>,
}

impl FolderFiles {
    /// The files of `manifest` in `folder`.
    ///
    /// # Errors
    /// Files that are missing or of another length.
    pub(crate) fn find(folder: &Path, manifest: &Manifest) -> Result<FolderFiles, CheckpointError> {
        for FileRecord { name, bytes: expected, .. } in &manifest.files {
            let path = folder.join(name);
            match fs::metadata(&path) {
                Ok(found) if found.len() == *expected => {}
                Ok(found) => return Err(CheckpointError::Length { path, found: found.len(), expected: *expected }),
                Err(reason) => return Err(CheckpointError::Read { path, reason }),
            }
        }
        let files = manifest.files.iter().map(|file| (file.name.clone(), OnceLock::new())).collect();
        Ok(FolderFiles { folder: folder.to_path_buf(), files })
    }
}

impl DataFiles for FolderFiles {
    fn copies(&self, _name: &str) -> usize {
        1
    }

    fn read(&self, name: &str, _copy: usize, bytes: &mut [u8], offset_bytes: u64) -> io::Result<()> {
        let unknown = || io::Error::new(io::ErrorKind::NotFound, "it is not a file of this checkpoint");
        let slot = self.files.get(name).ok_or_else(unknown)?;
        let file = match slot.get() {
            Some(file) => file,
            // Of two threads that open it at the same time one keeps its file.
            None => {
                let opened = files::open(&self.folder.join(name), InputKind::Data)?;
                slot.get_or_init(|| opened)
            }
        };
        read_exact_at(file, bytes, offset_bytes)
    }

    fn replaced(&self, _name: &str, _copy: usize, _error: &CheckpointError) {}
}
