use std::io;
use std::path::{Path, PathBuf};

/// Why there is no secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// A file that other users can read.
    #[error("{path} holds a secret and has mode {mode:o}; use `chmod 600 {path}`", path = .path.display())]
    Readable {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A file without a secret.
    #[error("{} must hold 64 hexadecimal digits; remove it, or write the output of `openssl rand -hex 32`", .0.display())]
    Content(PathBuf),
    /// A file that cannot be read or made.
    #[error("{path}, which holds a secret: {reason}", path = .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// No random numbers.
    #[error("the system has no random numbers for a secret")]
    Random,
}

impl SecretError {
    pub(crate) fn of_file(path: &Path, error: &io::Error) -> SecretError {
        SecretError::File { path: path.into(), reason: error.to_string() }
    }
}
