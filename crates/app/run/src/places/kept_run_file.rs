//! The run file that the folder of a run keeps.

use std::path::Path;

use config::KeptRunFile;
use files::{InputError, InputKind};

use crate::places::names::RUN_FILE;

/// The run file that the folder `run` keeps.
///
/// # Errors
/// One that is not there, or cannot be read.
pub fn kept_run_file(run: &Path) -> Result<KeptRunFile, InputError> {
    files::read_text_of_file(&run.join(RUN_FILE), InputKind::RunFile).map(KeptRunFile::new)
}
