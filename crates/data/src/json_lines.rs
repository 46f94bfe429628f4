//! JSON lines: an object per line, of which fields are read.

use std::path::Path;

use serde_json::Value;

use crate::corpus::Document;
use crate::error::DataError;

/// The documents of the file `path`, which holds `text`, one per line in the field `text`, named by their lines.
pub(crate) fn documents(path: &Path, text: &str) -> Result<Vec<Document>, DataError> {
    let lines = fields(path, text, ["text"])?;
    Ok(lines.into_iter().map(|(name, [text])| Document { name, text }).collect())
}

/// The strings `names` of every line of the file `path`, which holds `text`, with the line's name; lines without anything are passed over.
pub(crate) fn fields<const N: usize>(
    path: &Path,
    text: &str,
    names: [&str; N],
) -> Result<Vec<(String, [String; N])>, DataError> {
    let mut lines = Vec::new();
    let mut offset = text.len() - text.trim_start_matches('\u{feff}').len();
    for (index, line) in text[offset..].split_inclusive('\n').enumerate() {
        if !line.trim().is_empty() {
            let fields = fields_of(line, names).map_err(|(within, problem)| DataError::NotJsonLine {
                path: path.to_path_buf(),
                line: index + 1,
                offset: offset + within,
                problem,
                example: format!("{{{}}}", names.map(|name| format!("\"{name}\": \"...\"")).join(", ")),
            })?;
            lines.push((format!("{}:{}", path.display(), index + 1), fields));
        }
        offset += line.len();
    }
    Ok(lines)
}

/// The fields of a line, or what is wrong at which byte of it.
fn fields_of<const N: usize>(line: &str, names: [&str; N]) -> Result<[String; N], (usize, String)> {
    let mut object = match serde_json::from_str::<Value>(line) {
        Ok(Value::Object(object)) => object,
        Ok(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::String(_)) => {
            return Err((0, "is not a JSON object".into()));
        }
        Err(error) => return Err((error.column().saturating_sub(1).min(line.len()), "is not JSON".into())),
    };
    let mut fields = [const { String::new() }; N];
    for (field, name) in fields.iter_mut().zip(names) {
        *field = match object.remove(name) {
            Some(Value::String(text)) => text,
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                return Err((0, format!("has a field `{name}` that is not a string")));
            }
            None => return Err((0, format!("has no field `{name}`"))),
        };
    }
    Ok(fields)
}
