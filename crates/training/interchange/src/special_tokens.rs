//! The tokens that begin, end and fill texts. No model here reads them, but the library does when it generates; they go
//! where weights go.

use std::path::Path;

use serde_json::{Map, Value};

use crate::error::InterchangeError;
use crate::file_names::CONFIG;
use crate::folder::read_object;

/// The library's settings of generation.
pub const GENERATION_CONFIG: &str = "generation_config.json";

const END: &str = "eos_token_id";
const KEYS: [&str; 3] = ["bos_token_id", END, "pad_token_id"];

/// The special tokens of a folder, by the library's names: those of its [`GENERATION_CONFIG`], and what that leaves out
/// from its `config.json`.
///
/// # Errors
/// A file that is there and cannot be read.
pub fn read(folder: &Path) -> Result<Map<String, Value>, InterchangeError> {
    let mut tokens = Map::new();
    for file in [GENERATION_CONFIG, CONFIG].map(|name| folder.join(name)) {
        let map = if file.is_file() { read_object(&file)? } else { Map::new() };
        for (key, value) in map.into_iter().filter(|(key, value)| KEYS.contains(&key.as_str()) && !value.is_null()) {
            tokens.entry(key).or_insert(value);
        }
    }
    Ok(tokens)
}

/// The tokens that end a text that is generated, in ascending order: one or several `eos_token_id` of a folder.
///
/// # Errors
/// A file that is there and cannot be read, or has other ends than tokens.
pub fn ends(folder: &Path) -> Result<Vec<u32>, InterchangeError> {
    let tokens = read(folder)?;
    let Some(value) = tokens.get(END) else { return Ok(vec![]) };
    let listed = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    let token = |value: &Value| value.as_u64().and_then(|token| u32::try_from(token).ok());
    let mut ends: Vec<u32> = listed.iter().map(token).collect::<Option<_>>().ok_or_else(|| {
        let rule = "must be a token or a list of tokens".into();
        InterchangeError::Config { path: folder.into(), key: END.into(), value: value.to_string(), rule }
    })?;
    ends.sort_unstable();
    ends.dedup();
    Ok(ends)
}

/// Writes the special tokens of `from` into the [`GENERATION_CONFIG`] of `to`, unless that is there or there are none.
///
/// # Errors
/// A file that cannot be read or written.
pub fn keep(from: &Path, to: &Path) -> Result<(), InterchangeError> {
    let (tokens, file) = (read(from)?, to.join(GENERATION_CONFIG));
    if tokens.is_empty() || file.exists() {
        return Ok(());
    }
    let text = format!("{:#}\n", Value::Object(tokens));
    files::replace(&file, text).map_err(|reason| InterchangeError::Write { path: file, reason })
}
