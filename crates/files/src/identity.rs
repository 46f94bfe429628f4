//! Whether two paths are the same file.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Whether both paths exist and lead to the same file, by other names, links or hard links.
pub fn same_file(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    identity(one).is_some_and(|one| identity(other) == Some(one))
}
