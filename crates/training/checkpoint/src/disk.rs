//! The calls of a file system that a checkpoint needs, so that tests can intercept them: each function is one step that
//! can fail, or be the last one of a process that is killed.

use std::fmt::Debug;
use std::fs::{self, File};
use std::io;
use std::path::Path;

use crate::disk_file::DiskFile;

/// A place for checkpoints. Names are those of a file system of this machine, where a place does not say otherwise.
pub trait Storage: Debug + Send + Sync {
    /// Makes a folder that is not there yet.
    ///
    /// # Errors
    /// The error of the system, as for all functions here.
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    /// Makes a file of `len_bytes` that is not there yet, with its room where room can be taken before it is written.
    ///
    /// # Errors
    /// As above.
    fn create(&self, path: &Path, len_bytes: u64) -> io::Result<Box<dyn NewFile>>;

    /// Gives a file or folder another name, at once. A file of that name is replaced.
    ///
    /// # Errors
    /// As above.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    /// Makes the names in a folder last.
    ///
    /// # Errors
    /// As above.
    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    /// Removes a folder with all that is in it.
    ///
    /// # Errors
    /// As above.
    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }
}

/// A file in the making.
pub trait NewFile: Debug + Send {
    /// Takes all of `bytes`, which are after those that were taken before. They may be written later.
    ///
    /// # Errors
    /// The error of the system, for these bytes or for earlier ones.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Writes what is not written yet, and makes all of it last.
    ///
    /// # Errors
    /// The error of the system.
    fn sync(self: Box<Self>) -> io::Result<()>;
}

/// A file system of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

impl Storage for Disk {
    fn create(&self, path: &Path, len_bytes: u64) -> io::Result<Box<dyn NewFile>> {
        Ok(Box::new(DiskFile::create(path, len_bytes)?))
    }
}

/// Writes all of `bytes` from `offset_bytes` on.
pub(crate) fn write_all_at(file: &File, bytes: &[u8], offset_bytes: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset_bytes)
}

/// Fills `bytes` from `offset_bytes` on.
pub(crate) fn read_exact_at(file: &File, bytes: &mut [u8], offset_bytes: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset_bytes)
}

/// Makes the name of the file at `path` last.
pub(crate) fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Disk.sync_folder(folder)
}
