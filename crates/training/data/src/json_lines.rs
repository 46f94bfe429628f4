//! JSON lines: an object per line, of which fields are read.

use std::path::Path;

use formats::{Cell, ColumnChoice};
use serde_json::{Map, Value};

use crate::error::DataError;
use crate::learned_tokens::Learned;

/// Names of fields that a message lists.
const LISTED: usize = 20;

/// Most values of a line of JSON, which bound its memory.
const MOST_VALUES: usize = 1 << 24;

/// The commas and brackets that open in JSON, outside of strings: at least the number of its values, without one.
pub(crate) fn values_in(json: &str) -> usize {
    let (mut values, mut in_string, mut bytes) = (0, false, json.bytes());
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => in_string = !in_string,
            b'\\' if in_string => drop(bytes.next()),
            b',' | b'[' | b'{' if !in_string => values += 1,
            _ => {}
        }
    }
    values
}

/// A problem of a line, as the rest of a sentence.
#[derive(Clone, Debug)]
pub(crate) enum LineProblem {
    /// Of its JSON or its text, at a byte of the line.
    Json { within: usize, problem: String },
    /// Of the numbers next to its tokens.
    Labels(String),
}

impl LineProblem {
    /// The error of line `line` of the file `path`, which begins at byte `offset` and should have the fields `names`.
    pub(crate) fn in_line(self, path: &Path, line: usize, offset: usize, names: &[&str]) -> DataError {
        let fields: Vec<String> = names.iter().map(|name| format!("\"{name}\": \"...\"")).collect();
        match self {
            LineProblem::Json { within, problem } => DataError::NotJsonLine {
                path: path.to_path_buf(),
                line,
                offset: offset + within,
                problem,
                example: format!("{{{}}}", fields.join(", ")),
            },
            LineProblem::Labels(problem) => {
                DataError::NotLearned { document: format!("{}:{line}", path.display()), problem }
            }
        }
    }
}

/// Whether text that begins with `beginning` is a JSON array of objects.
pub(crate) fn is_array_of_objects(beginning: &[u8]) -> bool {
    let after = |bytes: &[u8], mark: u8| {
        let blank = bytes.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        (bytes.get(blank) == Some(&mark)).then_some(blank + 1)
    };
    after(beginning, b'[').is_some_and(|at| after(&beginning[at..], b'{').is_some())
}

/// Whether text that begins with `beginning` begins with a JSON object: a brace, and a name or the other brace.
pub(crate) fn begins_object(beginning: &[u8]) -> bool {
    let text = beginning.trim_ascii_start();
    let within = text.strip_prefix(b"{").map(<[u8]>::trim_ascii_start);
    within.is_some_and(|within| within.starts_with(b"\"") || within.starts_with(b"}"))
}

/// Whether `line` is a JSON object.
pub(crate) fn is_object(line: &[u8]) -> bool {
    serde_json::from_slice::<Map<String, Value>>(line).is_ok()
}

/// The text or the tokens of a line, and whether each of its tokens is learned; `None` where all of it is.
pub(crate) fn cell(line: &str, column: &ColumnChoice) -> Result<(Cell, Option<Vec<bool>>), LineProblem> {
    let mut object = object_of(line)?;
    let wanted: Vec<&str> = match column {
        ColumnChoice::FirstOf(names) => names.to_vec(),
        ColumnChoice::Named(name) => vec![name],
    };
    let found = wanted.iter().find_map(|name| object.remove(*name).map(|value| (*name, value)));
    let Some((name, value)) = found else {
        let first = wanted.first().copied().unwrap_or_default();
        let is_conversation = object.contains_key("messages") && matches!(column, ColumnChoice::FirstOf(_));
        let hint = match is_conversation {
            true => " but `messages`, which `data.chat` reads".to_string(),
            false => others(object.keys().map(String::as_str), "the text"),
        };
        return Err(LineProblem::Json { within: 0, problem: format!("has no field `{first}`{hint}") });
    };
    let wrong = |what: &str| LineProblem::Json { within: 0, problem: format!("has a field `{name}` that is {what}") };
    if value.is_null() {
        return Err(wrong("null; leave the line out, or give it a string"));
    }
    match value {
        Value::String(text) => Ok((Cell::Text(text), None)),
        Value::Array(list) => {
            let token = |value: Value| value.as_u64().and_then(|token| u32::try_from(token).ok());
            let tokens = list.into_iter().map(token).collect::<Option<Vec<u32>>>();
            let tokens = tokens.ok_or_else(|| wrong("not a list of tokens"))?;
            let Learned { tokens, learned } = match column {
                ColumnChoice::FirstOf(_) => Learned::of_object(tokens, &object).map_err(LineProblem::Labels)?,
                // Whoever names the column learns all of its tokens.
                ColumnChoice::Named(_) => Learned::all(tokens),
            };
            Ok((Cell::Tokens(tokens), learned))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Err(wrong("not a string")),
    }
}

/// The fields that a record has in place of the one that is read, with the remedy; nothing of one without fields.
pub(crate) fn others<'a>(fields: impl Iterator<Item = &'a str>, content: &str) -> String {
    let all: Vec<String> = fields.map(|name| format!("`{name}`")).collect();
    if all.is_empty() {
        return String::new();
    }
    let cut = if all.len() > LISTED { ", …" } else { "" };
    let listed = all[..all.len().min(LISTED)].join(", ");
    format!(" but {listed}{cut}; name the one with {content} by `column`")
}

/// The strings `names` of every line of the file `path`, which holds `text`, with the line's name; lines without
/// anything are skipped.
pub(crate) fn fields<const N: usize>(
    path: &Path,
    text: &str,
    names: [&str; N],
) -> Result<Vec<(String, [String; N])>, DataError> {
    let mut lines = Vec::new();
    let mut offset = text.len() - text.trim_start_matches('\u{feff}').len();
    for (index, line) in text[offset..].split_inclusive('\n').enumerate() {
        if !line.trim().is_empty() {
            let fields = fields_of(line, names).map_err(|problem| problem.in_line(path, index + 1, offset, &names))?;
            lines.push((format!("{}:{}", path.display(), index + 1), fields));
        }
        offset += line.len();
    }
    Ok(lines)
}

fn object_of(line: &str) -> Result<Map<String, Value>, LineProblem> {
    if values_in(line) > MOST_VALUES {
        return Err(LineProblem::Json { within: 0, problem: format!("has more than {MOST_VALUES} values") });
    }
    match serde_json::from_str::<Value>(line) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::String(_)) => {
            Err(LineProblem::Json { within: 0, problem: "is not a JSON object".into() })
        }
        Err(error) => {
            let before: usize = line.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
            let within = (before + error.column().saturating_sub(1)).min(line.len());
            Err(LineProblem::Json { within, problem: "is not JSON".into() })
        }
    }
}

/// The fields of a line, or what is wrong at which byte of it.
fn fields_of<const N: usize>(line: &str, names: [&str; N]) -> Result<[String; N], LineProblem> {
    let mut object = object_of(line)?;
    let mut fields = [const { String::new() }; N];
    for (field, name) in fields.iter_mut().zip(names) {
        let problem = match object.remove(name) {
            Some(Value::String(text)) => {
                *field = text;
                continue;
            }
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                format!("has a field `{name}` that is not a string")
            }
            None => format!("has no field `{name}`"),
        };
        return Err(LineProblem::Json { within: 0, problem });
    }
    Ok(fields)
}
