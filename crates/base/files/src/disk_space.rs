//! The room of a disk, and errors of a full disk.

use std::io::{self, ErrorKind};
use std::path::Path;

/// The space of the file system that a path is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    /// Bytes that this user may still write.
    pub free_bytes: u64,
    /// Bytes of the file system.
    pub all_bytes: u64,
}

/// The room where `path` is, or its nearest folder that exists; `None` where the system does not tell.
pub fn disk_space_at(path: &Path) -> Option<DiskSpace> {
    let there = path.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(Path::new("."));
    let found = rustix::fs::statvfs(there).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    Some(DiskSpace { free_bytes: bytes(found.f_bavail), all_bytes: bytes(found.f_blocks) })
}

/// Whether a write failed because its disk, or the quota of its user, has no room.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_full_device_is_told_from_other_errors() {
        let mut full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("the device");
        assert!(is_full(&full.write_all(b"x").expect_err("it is full")));
        assert!(!is_full(&ErrorKind::PermissionDenied.into()) && !is_full(&ErrorKind::FileTooLarge.into()));
    }

    #[test]
    fn a_path_that_is_not_there_yet_has_the_room_of_its_folder() {
        let folder = std::env::temp_dir();
        let room = disk_space_at(&folder.join("no/such/run")).expect("a file system");
        assert_eq!(Some(room.all_bytes), disk_space_at(&folder).map(|room| room.all_bytes));
        assert!(room.free_bytes <= room.all_bytes && room.all_bytes > 0);
    }
}
