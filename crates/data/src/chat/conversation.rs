//! A conversation of a record.

use minijinja::value::ValueKind;
use minijinja::{Value, context};

use super::generation_tags::{ANSWER_BEGINS, ANSWER_ENDS};
use crate::json_lines;

/// Most messages of a conversation: its prefixes are rendered one by one.
const MOST_MESSAGES: usize = 4096;

/// Messages, as a template reads them.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// Objects with a `role` each.
    pub(super) messages: Vec<Value>,
    /// Tools that the model may call.
    pub(super) tools: Option<Value>,
    /// The first message that may be an answer to learn.
    pub(super) first_learned: usize,
    /// Bytes of the record.
    pub(super) bytes: usize,
}

impl Conversation {
    /// The conversation of a record in JSON: a list of messages, or an object with the list in its field `column`, or
    /// else in `messages`; or with `prompt` and `completion`, which are both lists, or both the text of one message.
    ///
    /// # Errors
    /// The problem, as the rest of a sentence.
    pub(super) fn parse(json: &str, column: Option<&str>) -> Result<Conversation, String> {
        let record: Value = serde_json::from_str(json).map_err(|error| format!("is not JSON: {error}"))?;
        check_marks(json)?;
        let field = |name: &str| record.get_attr(name).ok().filter(|value| !value.is_undefined() && !value.is_none());
        let list = column.unwrap_or("messages");
        let (messages, first_learned) = if record.kind() == ValueKind::Seq {
            (messages_of(&record, list)?, 0)
        } else if record.kind() != ValueKind::Map {
            return Err("is not a JSON object".into());
        } else {
            match (field(list), field("prompt"), field("completion")) {
                (Some(value), _, _) => (messages_of(&value, list)?, 0),
                (None, Some(prompt), Some(completion)) if column.is_none() => pair(&prompt, &completion)?,
                (None, _, _) => return Err(format!("has no field `{list}`{}", others(&record))),
            }
        };
        if messages.is_empty() {
            return Err("has no messages".into());
        }
        if messages.len() > MOST_MESSAGES {
            return Err(format!("has {} messages; at most {MOST_MESSAGES} are read", messages.len()));
        }
        let tools = if record.kind() == ValueKind::Map { field("tools").map(tools).transpose()? } else { None };
        Ok(Conversation { messages, tools, first_learned, bytes: json.len() })
    }
}

/// The fields of a record without messages, with the remedy.
fn others(record: &Value) -> String {
    let names: Vec<Value> = record.try_iter().map(Iterator::collect).unwrap_or_default();
    json_lines::others(names.iter().filter_map(Value::as_str), "the messages")
}

/// The marks of answers are not part of any text.
fn check_marks(json: &str) -> Result<(), String> {
    let small = json.to_ascii_lowercase();
    match [ANSWER_BEGINS, ANSWER_ENDS]
        .into_iter()
        .find(|mark| json.contains(*mark) || small.contains(&format!("\\u{:04x}", u32::from(*mark))))
    {
        Some(mark) => Err(format!("has the noncharacter U+{:04X}; take it out", u32::from(mark))),
        None => Ok(()),
    }
}

/// A list, or a list that a string holds as JSON.
fn messages_of(value: &Value, name: &str) -> Result<Vec<Value>, String> {
    let parsed = match value.as_str() {
        Some(text) => serde_json::from_str(text).map_err(|error| format!("has `{name}` that is not JSON: {error}"))?,
        None => value.clone(),
    };
    if parsed.kind() != ValueKind::Seq {
        return Err(format!("has a field `{name}` that is not a list of messages"));
    }
    let messages: Vec<Value> = parsed.try_iter().map_err(|error| error.to_string())?.collect();
    for (number, message) in messages.iter().enumerate() {
        if role(message).is_none() {
            return Err(format!("has {name}[{number}] without a `role`"));
        }
        let weight = message.get_attr("weight").ok().filter(|weight| !weight.is_undefined());
        if weight.is_some_and(|weight| weight != Value::from(1)) {
            return Err(format!("has {name}[{number}] with a `weight`, which is not read; leave it out"));
        }
    }
    Ok(messages)
}

/// A question with its answer: the messages, and the first that is an answer.
fn pair(prompt: &Value, completion: &Value) -> Result<(Vec<Value>, usize), String> {
    let message = |role: &str, text: &str| context! { role, content => text };
    match (prompt.as_str(), completion.as_str()) {
        (Some(prompt), Some(completion)) => Ok((vec![message("user", prompt), message("assistant", completion)], 1)),
        (None, None) => {
            let prompt = messages_of(prompt, "prompt")?;
            let first = prompt.len();
            Ok(([prompt, messages_of(completion, "completion")?].concat(), first))
        }
        (Some(_), None) | (None, Some(_)) => {
            Err("has `prompt` and `completion` of which one is a string; use two strings or two lists".into())
        }
    }
}

/// The tools, which may be written as JSON in a string.
fn tools(value: Value) -> Result<Value, String> {
    let parsed = match value.as_str() {
        Some(text) => serde_json::from_str(text).map_err(|error| format!("has `tools` that are not JSON: {error}"))?,
        None => value,
    };
    match parsed.kind() == ValueKind::Seq {
        true => Ok(parsed),
        false => Err("has a field `tools` that is not a list".into()),
    }
}

/// The role of a message.
pub(super) fn role(message: &Value) -> Option<String> {
    message.get_attr("role").ok()?.as_str().map(str::to_string)
}
