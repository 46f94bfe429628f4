//! 32 bytes that only their owner has.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

use files::InputKind;
use ring::rand::{SecureRandom, SystemRandom};

use crate::SecretError;

/// 32 secret bytes. Its text of 64 hexadecimal digits is for files of mode 0600 and for environments; other text never
/// has it.
#[derive(Clone)]
pub struct Secret([u8; Secret::BYTES]);

impl Secret {
    /// Size of a secret.
    pub const BYTES: usize = 32;

    /// The secret of these bytes.
    pub const fn new(bytes: [u8; Secret::BYTES]) -> Secret {
        Secret(bytes)
    }

    /// A secret from the system's random numbers.
    ///
    /// # Errors
    /// A system without random numbers.
    pub fn random() -> Result<Secret, SecretError> {
        let mut bytes = [0; Secret::BYTES];
        SystemRandom::new().fill(&mut bytes).map_err(|_| SecretError::Random)?;
        Ok(Secret(bytes))
    }

    /// The secret of 64 hexadecimal digits.
    pub fn from_hex(digits: &str) -> Option<Secret> {
        let digits = digits.trim().as_bytes();
        if digits.len() != 2 * Secret::BYTES {
            return None;
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let mut bytes = [0; Secret::BYTES];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Secret(bytes))
    }

    /// The secret in a file that only its owner may read.
    ///
    /// # Errors
    /// See [`SecretError`].
    pub fn from_file(path: &Path) -> Result<Secret, SecretError> {
        let failed = |error: io::Error| SecretError::of_file(path, &error);
        let file = files::open(path, InputKind::Token).map_err(|error| failed(error.into()))?;
        check_private(path, &file)?;
        let mut digits = String::new();
        file.take(4 * Secret::BYTES as u64).read_to_string(&mut digits).map_err(failed)?;
        Secret::from_hex(&digits).ok_or_else(|| SecretError::Content(path.into()))
    }

    /// The secret in the file `path`, which the first process that asks makes from random numbers.
    ///
    /// # Errors
    /// See [`SecretError`].
    pub fn from_file_or_random(path: &Path) -> Result<Secret, SecretError> {
        if !path.exists() {
            let (secret, draft) = (Secret::random()?, Secret::random()?);
            let draft = path.with_extension(&draft.to_hex()[..16]);
            secret.write_once(path, &draft).map_err(|error| SecretError::of_file(path, &error))?;
        }
        Secret::from_file(path)
    }

    /// The 64 hexadecimal digits, for the environment or the input of another process. Never for a command line, which
    /// other users see.
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The secret itself.
    pub fn bytes(&self) -> &[u8; Secret::BYTES] {
        &self.0
    }

    /// Writes the secret to `path`, by way of `draft`, unless another process did so first; no reader sees half of it.
    fn write_once(&self, path: &Path, draft: &Path) -> io::Result<()> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(draft)?;
        file.write_all(self.to_hex().as_bytes())?;
        file.sync_all()?;
        let linked = std::fs::hard_link(draft, path);
        std::fs::remove_file(draft)?;
        match linked {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            linked => linked,
        }
    }
}

/// Never the secret itself.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

fn check_private(path: &Path, file: &File) -> Result<(), SecretError> {
    use std::os::unix::fs::PermissionsExt;
    let mode = file.metadata().map_err(|error| SecretError::of_file(path, &error))?.permissions().mode() & 0o777;
    if mode & 0o077 == 0 { Ok(()) } else { Err(SecretError::Readable { path: path.into(), mode }) }
}
