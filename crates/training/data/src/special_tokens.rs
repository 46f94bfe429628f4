//! The special tokens of a tokenizer's folder, by the files of the Hugging Face library.

use std::path::Path;

use config::{Marks, TokenizerSpec};
use files::{InputError, InputKind, read_text};
use serde_json::{Map, Value};

use crate::error::DataError;

/// The library's description of a tokenizer, next to its file.
pub(crate) const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
const SPECIAL_TOKENS_MAP: &str = "special_tokens_map.json";
const GENERATION_CONFIG: &str = "generation_config.json";
const MODEL_CONFIG: &str = "config.json";

/// Special tokens that a template may name.
const NAMES: [&str; 7] = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// The object in the file `name` of `folder`; an empty one where there is no file.
///
/// # Errors
/// A file that cannot be read, or is not a JSON object.
pub(crate) fn object(folder: &Path, name: &str) -> Result<Map<String, Value>, DataError> {
    let path = folder.join(name);
    if !path.exists() {
        return Ok(Map::new());
    }
    parsed(&path, InputKind::ModelDescription)
}

fn parsed(path: &Path, kind: InputKind) -> Result<Map<String, Value>, DataError> {
    let unreadable = |error: InputError| DataError::Unreadable { path: path.to_path_buf(), reason: error.into() };
    let text = read_text(path, kind).map_err(unreadable)?;
    serde_json::from_str(&text)
        .map_err(|error| DataError::NotJson { path: path.to_path_buf(), reason: error.to_string() })
}

/// The special tokens of `folder` by name, as text: those of `tokenizer_config.json`, and what that leaves out from
/// `special_tokens_map.json`.
///
/// # Errors
/// A file that cannot be read.
pub(crate) fn named(folder: &Path) -> Result<Vec<(&'static str, String)>, DataError> {
    let maps = [object(folder, TOKENIZER_CONFIG)?, object(folder, SPECIAL_TOKENS_MAP)?];
    let token = |name: &'static str| Some((name, maps.iter().find_map(|map| content(map.get(name)?))?));
    Ok(NAMES.into_iter().filter_map(token).collect())
}

/// A token as a string, or as an object with a `content`.
fn content(value: &Value) -> Option<String> {
    value.get("content").unwrap_or(value).as_str().map(str::to_string)
}

/// The tokens around documents where a run file names none: with the tokenizer of a file those that the library puts
/// around a text, and the end of a text by the files next to it.
///
/// # Errors
/// A file that is there and cannot be read.
pub fn marks_of(tokenizer: &TokenizerSpec) -> Result<Marks, DataError> {
    match tokenizer {
        TokenizerSpec::File(path) => marks_of_file(path),
        TokenizerSpec::Bytes | TokenizerSpec::Bpe { .. } | TokenizerSpec::OfTokenFiles => Ok(Marks::default()),
    }
}

/// The end is the first that one of these says: the tokenizer's post-processor, `tokenizer_config.json`,
/// `special_tokens_map.json`, `generation_config.json` and `config.json`.
///
/// A file that is missing has none: whoever reads text says so, and a plan reads none.
fn marks_of_file(tokenizer: &Path) -> Result<Marks, DataError> {
    if !tokenizer.exists() {
        return Ok(Marks::default());
    }
    let description = parsed(tokenizer, InputKind::Tokenizer)?;
    let mut marks = description.get("post_processor").map(around_texts).unwrap_or_default();
    let folder = tokenizer.parent().unwrap_or(Path::new(""));
    let named = named(folder)?;
    let special = |name| named.iter().find(|(own, _)| *own == name).map(|(_, text)| text.clone());
    let adds_begin = object(folder, TOKENIZER_CONFIG)?.get("add_bos_token") == Some(&Value::Bool(true));
    if marks.begin.is_empty() && adds_begin {
        marks.begin = special("bos_token").unwrap_or_default();
    }
    if marks.end.is_empty() {
        marks.end = match special("eos_token") {
            Some(text) => text,
            None => end_by_number(folder, &description)?.unwrap_or_default(),
        };
    }
    Ok(marks)
}

/// The tokens that a post-processor puts before and after a text.
fn around_texts(processor: &Value) -> Marks {
    let first_text = |key: &str| processor.get(key).and_then(|pair| pair.get(0)?.as_str()).map(str::to_string);
    match processor.get("type").and_then(Value::as_str) {
        Some("TemplateProcessing") => {
            let pieces = processor.get("single").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            let token = |piece: &Value| piece.get("SpecialToken")?.get("id")?.as_str().map(str::to_string);
            let Some(text) = pieces.iter().position(|piece| piece.get("Sequence").is_some()) else {
                return Marks::default();
            };
            let [begin, end] = [&pieces[..text], &pieces[text + 1..]].map(|own| own.iter().filter_map(token).collect());
            Marks { begin, end }
        }
        Some("BertProcessing" | "RobertaProcessing") => {
            Marks { begin: first_text("cls").unwrap_or_default(), end: first_text("sep").unwrap_or_default() }
        }
        Some("Sequence") => {
            let parts = processor.get("processors").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            parts.iter().map(around_texts).find(|marks| *marks != Marks::default()).unwrap_or_default()
        }
        Some(_) | None => Marks::default(),
    }
}

/// The text of the first `eos_token_id` of the folder's settings of generation, or of its model.
fn end_by_number(folder: &Path, description: &Map<String, Value>) -> Result<Option<String>, DataError> {
    for file in [GENERATION_CONFIG, MODEL_CONFIG] {
        let map = object(folder, file)?;
        let Some(value) = map.get("eos_token_id") else { continue };
        let Some(number) = value.get(0).unwrap_or(value).as_u64() else { continue };
        let added = description.get("added_tokens").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let is_it = |token: &&Value| token.get("id").and_then(Value::as_u64) == Some(number);
        return Ok(added.iter().find(is_it).and_then(content));
    }
    Ok(None)
}
