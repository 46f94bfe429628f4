//! How the programs that write a page of `docs` end.

use std::path::Path;
use std::process::ExitCode;

/// Success, or the failure that `outcome` tells, said on standard error.
pub fn ended(outcome: Result<(), String>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

/// Puts `text` into the file at `path`.
///
/// # Errors
/// A file that cannot be written, by its name.
pub fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
