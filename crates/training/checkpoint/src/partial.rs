//! A file that is not whole yet: under another name, with all the room that it will need, and with one writer.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use files::{check_replaceable, reserve};

use crate::disk::sync_folder_of;
use crate::error::FileError;
use crate::lock::{Lock, try_lock};

/// The file `.NAME.partial` next to the file that it will become. Dropped, it is removed; a process that is killed
/// leaves it to the next writer of that name.
#[derive(Debug)]
pub(crate) struct Partial {
    /// Takes the content; `len_bytes` long from the beginning.
    pub(crate) file: File,
    path: PathBuf,
    /// `None` once the file has its name.
    temporary: Option<PathBuf>,
}

impl Partial {
    /// A file of `len_bytes` that will be called `path`. The room is taken now, where the file system can, so that a
    /// disk that is too full is found out now and not when there is something to lose.
    ///
    /// # Errors
    /// A folder that cannot be written, a disk without room, another process that writes the same file.
    pub(crate) fn create(path: &Path, len_bytes: u64) -> Result<Partial, FileError> {
        let failed = |reason| FileError::Write { path: path.to_path_buf(), reason };
        check_replaceable(path).map_err(|error| failed(error.into()))?;
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let temporary = path.with_file_name(format!(".{name}.partial"));
        // The lock comes first, so a file that another process writes is not truncated.
        let file = files::open_to_change(&temporary).map_err(failed)?;
        // If another writer just gave the file its name, the lock is free and the temporary name is gone.
        if try_lock(&file).map_err(failed)? == Lock::Busy || !temporary.exists() {
            return Err(FileError::Busy { path: path.to_path_buf() });
        }
        let partial = Partial { file, path: path.to_path_buf(), temporary: Some(temporary) };
        partial.file.set_len(0).and_then(|()| reserve(&partial.file, len_bytes)).map_err(|reason| {
            use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
            match matches!(reason.kind(), FileTooLarge | QuotaExceeded | StorageFull) {
                true => FileError::NoSpace { path: path.to_path_buf(), len_bytes, reason },
                false => failed(reason),
            }
        })?;
        Ok(partial)
    }

    /// Brings everything to the disk and gives the file its name; what had the name before is gone then, and not
    /// earlier.
    pub(crate) fn keep(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        if let Some(temporary) = &self.temporary {
            fs::rename(temporary, &self.path)?;
        }
        self.temporary = None;
        sync_folder_of(&self.path)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // If it cannot be removed, the next writer takes it over.
            let _ = fs::remove_file(temporary);
        }
    }
}
