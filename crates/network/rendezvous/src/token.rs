//! The secret that all processes of a run have.

use std::path::{Path, PathBuf};

use launcher::{Environment, variable};
use secrets::{Purpose, Secret};

use crate::error::TokenError;
use crate::introduction::Directory;

const OF_RUN: Purpose = Purpose::new("token of one run");

/// 32 secret bytes that a process proves to hold, and never shows.
#[derive(Clone, Debug)]
pub struct Token(Secret);

impl Token {
    /// Size of a token.
    pub const BYTES: usize = Secret::BYTES;

    /// A token from the system's random numbers.
    ///
    /// # Errors
    /// A system without random numbers.
    pub fn random() -> Result<Token, TokenError> {
        Ok(Token(Secret::random()?))
    }

    /// The token of this process: `PLEACH_TOKEN`, else the file that `PLEACH_TOKEN_FILE` names, else `.pleach/token` in
    /// the home folder, which the first process makes. All hosts of a cluster with a shared home folder have the same
    /// file.
    ///
    /// # Errors
    /// See [`TokenError`].
    pub fn of_process(environment: Environment<'_>) -> Result<Token, TokenError> {
        if let Some(digits) = environment(variable::TOKEN) {
            return Token::from_hex(&digits).ok_or(TokenError::Variable);
        }
        if let Some(path) = environment(variable::TOKEN_FILE) {
            return Ok(Token(Secret::from_file(Path::new(&path))?));
        }
        let home = environment("HOME").filter(|home| !home.is_empty()).ok_or(TokenError::NoPlace)?;
        Ok(Token(Secret::from_file_or_random(&PathBuf::from(home).join(".pleach").join("token"))?))
    }

    /// The token of 64 hexadecimal digits.
    pub fn from_hex(digits: &str) -> Option<Token> {
        Secret::from_hex(digits).map(Token)
    }

    /// The token of one run, for further connections of its processes: those of another run with the same token are
    /// refused.
    #[must_use]
    pub fn of_run(&self, directory: &Directory) -> Token {
        Token(self.0.derive(OF_RUN, &[directory.run.as_bytes()]))
    }

    /// The 64 hexadecimal digits, for the environment or the input of another process of the run. Never for a command
    /// line, which other users see.
    pub fn to_hex(&self) -> String {
        self.0.to_hex()
    }

    /// The secret itself, for another channel of the same run.
    pub fn secret(&self) -> &Secret {
        &self.0
    }
}
