//! Why a command failed, and the exit code that says so.

use std::process::ExitCode;

/// A failure with its message.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// What the user wrote or named cannot be used.
    #[error("{0}")]
    Input(String),
    /// The work itself failed.
    #[error("{0}")]
    Work(String),
}

impl Failure {
    /// The exit code of work that failed.
    pub const WORK: i32 = 1;

    /// 2 for the user's input, 1 for the rest. The command line's parser uses 2 too, and an interrupt ends with 130.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Input(_) => ExitCode::from(2),
            Failure::Work(_) => ExitCode::from(Failure::WORK as u8),
        }
    }
}
