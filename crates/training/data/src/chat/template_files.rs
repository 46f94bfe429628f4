//! The chat template of a model's folder, and its special tokens.

use std::path::{Path, PathBuf};

use files::{InputError, InputKind, read_text};
use serde_json::{Map, Value};

use crate::error::DataError;

const TEMPLATE: &str = "chat_template.jinja";
const CONFIG: &str = "tokenizer_config.json";

/// Special tokens that a template may name.
const SPECIAL_TOKENS: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// A template as it was written.
#[derive(Clone, Debug)]
pub(super) struct TemplateFiles {
    /// The file that holds it, for messages.
    pub(super) path: PathBuf,
    /// The template.
    pub(super) source: String,
    /// The template for conversations with tools, where it is another one.
    pub(super) with_tools: Option<String>,
    /// Special tokens by name, as text.
    pub(super) special_tokens: Vec<(&'static str, String)>,
}

/// Reads the template at `path`: a folder with `chat_template.jinja`, or with `chat_template` in
/// `tokenizer_config.json`; or a file of its own, with the special tokens in its folder. The file `chat_template.jinja`
/// counts before the key, as in transformers.
///
/// # Errors
/// A file that cannot be read, and a folder without a template.
pub(super) fn read(path: &Path) -> Result<TemplateFiles, DataError> {
    let unreadable = |path: &Path, error: InputError| {
        let path = path.to_path_buf();
        DataError::Unreadable { path, reason: error.into() }
    };
    let is_folder = path.is_dir();
    let folder = if is_folder { path } else { path.parent().unwrap_or(Path::new("")) };
    let config = config(&folder.join(CONFIG))?;
    let special_tokens = special_tokens(&config);
    let own = if is_folder { path.join(TEMPLATE) } else { path.to_path_buf() };
    if !is_folder || own.exists() {
        let source = read_text(&own, InputKind::Tokenizer).map_err(|error| unreadable(&own, error))?;
        return Ok(TemplateFiles { path: own, source, with_tools: None, special_tokens });
    }
    let missing = || DataError::NoTemplate(path.to_path_buf());
    let (source, with_tools) = match config.get("chat_template").ok_or_else(missing)? {
        Value::String(source) => (source.clone(), None),
        Value::Array(list) => {
            let named = |name: &str| {
                let entry = list.iter().find(|entry| entry.get("name").and_then(Value::as_str) == Some(name))?;
                entry.get("template").and_then(Value::as_str).map(str::to_string)
            };
            (named("default").ok_or_else(missing)?, named("tool_use"))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => return Err(missing()),
    };
    Ok(TemplateFiles { path: folder.join(CONFIG), source, with_tools, special_tokens })
}

/// `tokenizer_config.json`; nothing where it is missing.
fn config(path: &Path) -> Result<Map<String, Value>, DataError> {
    if !path.exists() {
        return Ok(Map::new());
    }
    let bad = |reason: String| DataError::BadTemplate { path: path.to_path_buf(), reason };
    let text = read_text(path, InputKind::ModelDescription)
        .map_err(|error| DataError::Unreadable { path: path.to_path_buf(), reason: error.into() })?;
    serde_json::from_str(&text).map_err(|error| bad(format!("it is not JSON: {error}")))
}

/// Tokens as strings, or as objects with a `content`.
fn special_tokens(config: &Map<String, Value>) -> Vec<(&'static str, String)> {
    let token = |name: &'static str| {
        let value = config.get(name)?;
        let content = value.get("content").unwrap_or(value);
        Some((name, content.as_str()?.to_string()))
    };
    SPECIAL_TOKENS.into_iter().filter_map(token).collect()
}
