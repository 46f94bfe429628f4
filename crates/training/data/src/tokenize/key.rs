//! The origin of a token file as a number: content of the sources, the columns that are read, and the tokenizer.

use std::fmt;
use std::io::Read;
use std::path::Path;

use config::SourceSpec;
use files::InputKind;
use xxhash_rust::xxh3::Xxh3Default;

use super::Input;
use crate::error::DataError;
use crate::megatron;
use crate::tokenizer::Tokenizer;

/// Changes where the same content becomes other tokens: a change of how documents are found or cut.
const READER: u64 = 2;
const BLOCK_BYTES: usize = 1 << 20;

/// XXH3 of 128 bits of all bytes of the sources' files in their order, of the names of columns, and of the tokenizer's
/// identity. Where the files are, and how they are called, does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(pub u128);

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl Key {
    /// The key of `inputs`, the files of `sources`.
    pub(crate) fn of(inputs: &[Input], sources: &[SourceSpec], tokenizer: &Tokenizer) -> Result<Key, DataError> {
        let mut hash = Xxh3Default::new();
        hash.update(&READER.to_le_bytes());
        hash.update(&tokenizer.identity()?.to_le_bytes());
        hash.update(&(tokenizer.vocabulary() as u64).to_le_bytes());
        let marks = [tokenizer.begin(), tokenizer.end()];
        if marks.iter().any(|mark| !mark.is_empty()) {
            for mark in marks {
                hash.update(&(mark.len() as u64).to_le_bytes());
                mark.iter().for_each(|token| hash.update(&token.to_le_bytes()));
            }
        }
        for source in sources {
            add_text(&mut hash, source.column.as_deref().unwrap_or("\0"));
        }
        for input in inputs {
            match input {
                Input::Records(path, _) => {
                    // The name decides only whether each line must be JSON.
                    let ending = crate::file_names::inner_ending(path).unwrap_or_default();
                    add_text(&mut hash, &ending);
                    add_file(&mut hash, path)?;
                }
                Input::TokenFile(path) => add_file(&mut hash, path)?,
                Input::Pair(path) => megatron::pair(path).iter().try_for_each(|path| add_file(&mut hash, path))?,
            }
        }
        Ok(Key(hash.digest128()))
    }
}

fn add_text(hash: &mut Xxh3Default, text: &str) {
    hash.update(&(text.len() as u64).to_le_bytes());
    hash.update(text.as_bytes());
}

/// Adds the length of a file and its bytes.
fn add_file(hash: &mut Xxh3Default, path: &Path) -> Result<(), DataError> {
    let unreadable = |reason: std::io::Error| DataError::Unreadable { path: path.to_path_buf(), reason };
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        // A pipe is read once, so nothing that was made of it can be found again.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        hash.update(&now.as_nanos().to_le_bytes());
        hash.update(&std::process::id().to_le_bytes());
        return Ok(());
    }
    let mut file = files::open(path, InputKind::Data).map_err(|error| unreadable(error.into()))?;
    hash.update(&file.metadata().map_err(unreadable)?.len().to_le_bytes());
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        match file.read(&mut block).map_err(unreadable)? {
            0 => return Ok(()),
            count => hash.update(&block[..count]),
        }
    }
}
