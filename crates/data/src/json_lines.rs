//! JSON lines: a document per line, in the field `text`.

use std::path::Path;

use serde_json::Value;

use crate::corpus::Document;
use crate::error::DataError;

/// The documents of the file `path`, which holds `text`, named by their lines; lines without anything are passed over.
pub(crate) fn documents(path: &Path, text: &str) -> Result<Vec<Document>, DataError> {
    let mut documents = Vec::new();
    let mut offset = text.len() - text.trim_start_matches('\u{feff}').len();
    for (index, line) in text[offset..].split_inclusive('\n').enumerate() {
        if !line.trim().is_empty() {
            let text = text_of(line).map_err(|(within, problem)| {
                let path = path.to_path_buf();
                DataError::NotJsonLine { path, line: index + 1, offset: offset + within, problem }
            })?;
            documents.push(Document { name: format!("{}:{}", path.display(), index + 1), text });
        }
        offset += line.len();
    }
    Ok(documents)
}

/// The text of a line, or what is wrong at which byte of it.
fn text_of(line: &str) -> Result<String, (usize, String)> {
    match serde_json::from_str::<Value>(line) {
        Ok(Value::Object(mut fields)) => match fields.remove("text") {
            Some(Value::String(text)) => Ok(text),
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                Err((0, "has a field `text` that is no string".into()))
            }
            None => Err((0, "has no field `text`".into())),
        },
        Ok(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::String(_)) => {
            Err((0, "is no JSON object".into()))
        }
        Err(error) => Err((error.column().saturating_sub(1).min(line.len()), "is not JSON".into())),
    }
}
