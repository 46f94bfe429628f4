//! Token files that runs make of their text and find again: in one folder, named after what they are made from.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use config::SourceSpec;

use crate::error::DataError;
use crate::odd_files::OddFilesRule;
use crate::token_file::TokenFile;
use crate::tokenize::{Input, Key, Listener, write};
use crate::tokenizer::Tokenizer;

/// How often a process looks whether another one is done with the same file.
const GLANCE: Duration = Duration::from_millis(200);

/// The token file of `source` in `folder`, made where it is missing or damaged. It is another one where a byte of the
/// source is another one, or the tokenizer. Processes that need the same file make it once.
///
/// # Errors
/// A source that cannot be read, a folder that cannot be written.
pub(crate) fn token_file(
    folder: &Path,
    source: &SourceSpec,
    tokenizer: &Tokenizer,
    odd_files: &OddFilesRule,
    listener: &dyn Listener,
) -> Result<TokenFile, DataError> {
    let inputs = Input::of(source, odd_files)?;
    let key = Key::of(&inputs, std::slice::from_ref(source), tokenizer)?;
    let path = folder.join(format!("{key}.tokens"));
    fs::create_dir_all(folder).map_err(|reason| DataError::Unwritable { path: folder.to_path_buf(), reason })?;
    loop {
        if path.exists()
            && let Ok(file) = TokenFile::open(&path)
        {
            return Ok(file);
        }
        match write(&inputs, tokenizer, key, &path, listener) {
            Ok(_) => return TokenFile::open(&path),
            // The lock of a process ends with it, and then this one continues.
            Err(DataError::Busy(_)) => thread::sleep(GLANCE),
            Err(error) => return Err(error),
        }
    }
}
