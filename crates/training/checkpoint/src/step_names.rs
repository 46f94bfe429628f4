//! The names of checkpoints' folders, which tell the steps that were done.

use std::path::{Path, PathBuf};

/// The file that names the newest checkpoint.
pub const LATEST: &str = "latest";

/// The beginning of their names.
pub(crate) const PREFIX: &str = "step-";

/// The name of the checkpoint after `steps` steps.
pub(crate) fn folder_name(steps: u32) -> String {
    format!("{PREFIX}{steps:08}")
}

/// Its name while it is written.
pub(crate) fn partial_name(steps: u32) -> String {
    format!(".{}.partial", folder_name(steps))
}

/// The steps that the name of a checkpoint's folder tells, where it is such a name.
pub fn named_steps(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.strip_prefix(PREFIX)?.parse().ok()
}

/// A checkpoint that was committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its folder.
    pub path: PathBuf,
    /// Steps that were done.
    pub steps: u32,
}
