//! Whether two paths are the same file, or will be.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Whether both paths exist and lead to the same file, by other names, links or hard links.
pub fn same_file(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    identity(one).is_some_and(|one| identity(other) == Some(one))
}

/// Whether both paths are the same place, also where nothing is there yet: the same name in the same folder.
pub fn same_place(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some((folder.canonicalize().ok()?, path.file_name()?.to_os_string()))
    };
    same_file(one, other) || place(one).is_some_and(|one| place(other) == Some(one))
}
