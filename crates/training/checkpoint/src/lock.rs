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

/// The file of the lock of a folder of checkpoints.
pub const LOCK: &str = ".lock";

/// The lock of a folder: its file [`LOCK`], which names the process that wrote it last. It is never removed, for then
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
        let path = folder.join(LOCK);
        let failed = |reason| CheckpointError::Write { path: path.clone(), reason };
        let mut file = files::open_to_change(&path).map_err(failed)?;
        if try_lock(&file).map_err(failed)? == Lock::Busy {
            return Err(CheckpointError::Locked { folder: folder.to_path_buf(), holder: named_in(&mut file) });
        }
        let holder = format!("process {}{}\n", std::process::id(), on_host());
        file.set_len(0).and_then(|()| file.write_all(holder.as_bytes())).map_err(failed)?;
        Ok(FolderLock { file })
    }
}

/// The process that a lock file names.
fn named_in(file: &mut File) -> String {
    let mut holder = String::new();
    // Who it is helps, but is not needed.
    let _ = file.read_to_string(&mut holder);
    holder.trim().into()
}

/// The host of this process, where the system tells it: several hosts may share a folder.
fn on_host() -> String {
    #[cfg(target_os = "linux")]
    return format!(" on host {}", rustix::system::uname().nodename().to_string_lossy());
    #[cfg(not(target_os = "linux"))]
    String::new()
}

/// Refuses a folder that another run writes to at this moment. The lock is taken for no longer than the answer takes.
///
/// # Errors
/// The process that has the lock.
pub fn check_unused(folder: &Path) -> Result<(), CheckpointError> {
    let Ok(mut file) = files::open(&folder.join(LOCK), InputKind::Data) else { return Ok(()) };
    match file.try_lock_shared() {
        Ok(()) => {
            let _ = file.unlock();
            Ok(())
        }
        Err(TryLockError::WouldBlock) => {
            Err(CheckpointError::Locked { folder: folder.to_path_buf(), holder: named_in(&mut file) })
        }
        Err(TryLockError::Error(_)) => Ok(()),
    }
}

/// Whether a run writes to `folder` at this moment.
pub fn is_in_use(folder: &Path) -> bool {
    check_unused(folder).is_err()
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // A process that is just being started from this one may still have the file open. If this fails, the lock ends
        // with that.
        let _ = self.file.unlock();
    }
}
