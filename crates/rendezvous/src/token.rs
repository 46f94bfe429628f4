//! The secret that all processes of a run have.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use files::InputKind;
use launcher::{Environment, variable};
use subtle::ConstantTimeEq;

use crate::error::TokenError;

/// 32 bytes that a process shows before anything else it says is read.
#[derive(Clone, PartialEq, Eq)]
pub struct Token([u8; Token::BYTES]);

impl Token {
    /// Size of a token.
    pub const BYTES: usize = 32;

    /// A token from the system's random numbers.
    ///
    /// # Errors
    /// A system without random numbers.
    pub fn random() -> Result<Token, TokenError> {
        let mut bytes = [0; Token::BYTES];
        getrandom::fill(&mut bytes).map_err(|error| TokenError::Random(error.to_string()))?;
        Ok(Token(bytes))
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
            return Token::from_file(Path::new(&path));
        }
        let home = environment("HOME").filter(|home| !home.is_empty()).ok_or(TokenError::NoPlace)?;
        let path = PathBuf::from(home).join(".pleach").join("token");
        if !path.exists() {
            Token::random()?.write_once(&path).map_err(|error| TokenError::of_file(&path, &error))?;
        }
        Token::from_file(&path)
    }

    /// The token of 64 hexadecimal digits.
    pub fn from_hex(digits: &str) -> Option<Token> {
        let digits = digits.trim().as_bytes();
        if digits.len() != 2 * Token::BYTES {
            return None;
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let mut bytes = [0; Token::BYTES];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Token(bytes))
    }

    /// The token in a file that only its owner may read.
    ///
    /// # Errors
    /// See [`TokenError`].
    pub fn from_file(path: &Path) -> Result<Token, TokenError> {
        let failed = |error: io::Error| TokenError::of_file(path, &error);
        let file = files::open(path, InputKind::Token).map_err(|error| failed(error.into()))?;
        check_private(path, &file)?;
        let mut digits = String::new();
        file.take(4 * Token::BYTES as u64).read_to_string(&mut digits).map_err(failed)?;
        Token::from_hex(&digits).ok_or_else(|| TokenError::Content(path.into()))
    }

    /// The 64 hexadecimal digits, for the environment or the input of another process of the run. Never for a command
    /// line, which other users see.
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The secret itself, for another channel of the same run.
    pub fn bytes(&self) -> &[u8; Token::BYTES] {
        &self.0
    }

    /// Whether `shown` is this token, in a time that does not depend on the bytes.
    pub(crate) fn matches(&self, shown: &[u8]) -> bool {
        self.0.ct_eq(shown).into()
    }

    /// Writes the token to `path` unless another process did so first; no reader sees half of it.
    fn write_once(&self, path: &Path) -> io::Result<()> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let draft = path.with_extension(format!("{}-{}", std::process::id(), &self.to_hex()[..16]));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&draft)?;
        file.write_all(self.to_hex().as_bytes())?;
        file.sync_all()?;
        let linked = std::fs::hard_link(&draft, path);
        std::fs::remove_file(&draft)?;
        match linked {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            linked => linked,
        }
    }
}

/// Never the secret itself.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(unix)]
fn check_private(path: &Path, file: &File) -> Result<(), TokenError> {
    use std::os::unix::fs::PermissionsExt;
    let mode = file.metadata().map_err(|error| TokenError::of_file(path, &error))?.permissions().mode() & 0o777;
    if mode & 0o077 == 0 { Ok(()) } else { Err(TokenError::Readable { path: path.into(), mode }) }
}

#[cfg(not(unix))]
fn check_private(_: &Path, _: &File) -> Result<(), TokenError> {
    Ok(())
}
