//! One writer at a time. Locks are the system's: those of a process end with it, however it ends.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::path::Path;

use files::InputKind;

use crate::checkpoint_error::CheckpointError;

/// Whether a lock could be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    /// It is this process's.
    Taken,
    /// Another process has it.
    Busy,
}

/// Takes the lock of `file`, without waiting. A file system without locks has one writer at a time if its user has.
///
/// # Errors
/// The error of the system.
pub(crate) fn try_lock(file: &File) -> io::Result<Lock> {
    match file.try_lock() {
        Ok(()) => Ok(Lock::Taken),
        Err(TryLockError::WouldBlock) => Ok(Lock::Busy),
        Err(TryLockError::Error(reason)) if reason.kind() == io::ErrorKind::Unsupported => Ok(Lock::Taken),
        Err(TryLockError::Error(reason)) => Err(reason),
    }
}

/// The lock of a folder: its file `.lock`, which names the process that wrote it last. It is never removed, for then
/// two processes could each hold a lock of that name.
#[derive(Debug)]
pub(crate) struct FolderLock {
    file: File,
}

impl FolderLock {
    /// Takes the lock of `folder`. A file that a killed process left does not prevent it.
    ///
    /// # Errors
    /// Another process that has it, or a folder that cannot be written.
    pub(crate) fn take(folder: &Path) -> Result<FolderLock, CheckpointError> {
        let path = folder.join(".lock");
        let failed = |reason| CheckpointError::Write { path: path.clone(), reason };
        let mut file = files::open_to_change(&path).map_err(failed)?;
        if try_lock(&file).map_err(failed)? == Lock::Busy {
            let mut holder = String::new();
            // Who it is helps, but is not needed.
            let _ = file.read_to_string(&mut holder);
            return Err(CheckpointError::Locked { folder: folder.to_path_buf(), holder: holder.trim().into() });
        }
        let holder = format!("process {}\n", std::process::id());
        file.set_len(0).and_then(|()| file.write_all(holder.as_bytes())).map_err(failed)?;
        Ok(FolderLock { file })
    }
}

/// Whether a run writes to `folder` at this moment. The lock is taken for no longer than the answer takes.
pub fn is_in_use(folder: &Path) -> bool {
    let Ok(file) = files::open(&folder.join(".lock"), InputKind::Data) else { return false };
    match file.try_lock_shared() {
        Ok(()) => {
            let _ = file.unlock();
            false
        }
        Err(TryLockError::WouldBlock) => true,
        Err(TryLockError::Error(_)) => false,
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // A process that is just being started from this one may still have the file open. If this fails, the lock ends
        // with that.
        let _ = self.file.unlock();
    }
}
