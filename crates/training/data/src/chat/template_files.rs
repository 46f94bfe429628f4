//! The chat template of a model's folder, and its special tokens.

use std::path::{Path, PathBuf};

use files::{InputError, InputKind, read_text};
use serde_json::Value;

use crate::error::DataError;
use crate::special_tokens::{TOKENIZER_CONFIG, named, object};

const TEMPLATE: &str = "chat_template.jinja";
/// The template of conversations with tools, next to [`TEMPLATE`].
const TEMPLATE_WITH_TOOLS: &str = "additional_chat_templates/tool_use.jinja";

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

/// Reads the template at `path`: a folder with `chat_template.jinja`, and perhaps another one for conversations with
/// tools in `additional_chat_templates`, or with `chat_template` in `tokenizer_config.json`; or a file of its own, with
/// the special tokens in its folder. The file `chat_template.jinja` counts before the key, as in transformers.
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
    let special_tokens = named(folder)?;
    let text = |own: &Path| read_text(own, InputKind::Tokenizer).map_err(|error| unreadable(own, error));
    let own = if is_folder { path.join(TEMPLATE) } else { path.to_path_buf() };
    if !is_folder || own.exists() {
        let of_tools = path.join(TEMPLATE_WITH_TOOLS);
        let with_tools = if is_folder && of_tools.exists() { Some(text(&of_tools)?) } else { None };
        return Ok(TemplateFiles { source: text(&own)?, path: own, with_tools, special_tokens });
    }
    let config = object(folder, TOKENIZER_CONFIG)?;
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
    Ok(TemplateFiles { path: folder.join(TOKENIZER_CONFIG), source, with_tools, special_tokens })
}
