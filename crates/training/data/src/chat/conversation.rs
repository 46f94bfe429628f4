//! A conversation of a record.

use super::answer_marks::{ANSWER_BEGINS, ANSWER_ENDS};
use super::jinja::{Dict, Value};
use crate::json_lines;

/// Most messages of a conversation: its prefixes are rendered one by one.
const MOST_MESSAGES: usize = 4096;

/// Most values of a conversation, each of which takes some hundred bytes.
const MOST_VALUES: usize = 1 << 21;

/// Messages, as a template reads them.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// Objects with a `role` each.
    pub(super) messages: Vec<Value>,
    /// Tools that the model may call.
    pub(super) tools: Option<Value>,
    /// The first message that may be an answer to learn.
    pub(super) first_learned: usize,
    /// Whether each message may be learned: one with the `weight` 0 or `train` false is not.
    pub(super) is_learned: Vec<bool>,
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
        if json.trim().is_empty() {
            return Err("has no messages".into());
        }
        let record = parsed(json)?;
        check_marks(json)?;
        let field = |name: &str| field(&record, name).filter(|value| !matches!(value, Value::None));
        let list = column.unwrap_or("messages");
        let (messages, first_learned) = match (record.as_elements(), record.as_dict()) {
            (Some(_), _) => (messages_of(&record, list)?, 0),
            (None, None) => return Err("is not a JSON object".into()),
            (None, Some(fields)) => match (field(list), field("prompt"), field("completion")) {
                (Some(value), _, _) => (messages_of(value, list)?, 0),
                (None, Some(prompt), Some(completion)) if column.is_none() => pair(prompt, completion)?,
                (None, _, _) => return Err(format!("has no field `{list}`{}", others(fields))),
            },
        };
        if messages.is_empty() {
            return Err("has no messages".into());
        }
        if messages.len() > MOST_MESSAGES {
            return Err(format!("has {} messages; at most {MOST_MESSAGES} are read", messages.len()));
        }
        let tools = field("tools").cloned().map(tools).transpose()?;
        let learned = messages.iter().enumerate().map(|(number, message)| {
            is_learned(message).map_err(|problem| format!("has {list}[{number}] with {problem}"))
        });
        let is_learned = learned.collect::<Result<_, _>>()?;
        Ok(Conversation { messages, tools, first_learned, is_learned, bytes: json.len() })
    }
}

/// The value of `json`, or the problem as the rest of a sentence.
fn parsed(json: &str) -> Result<Value, String> {
    if json_lines::values_in(json) > MOST_VALUES {
        return Err(format!("has more than {MOST_VALUES} values"));
    }
    serde_json::from_str(json).map_err(|error| format!("is not JSON: {error}"))
}

/// The fields of a record without messages, with the remedy.
fn others(record: &Dict) -> String {
    json_lines::others(record.keys().filter_map(Value::as_text), "the messages")
}

/// The field `name` of an object.
fn field<'v>(object: &'v Value, name: &str) -> Option<&'v Value> {
    object.as_dict()?.get_text(name)
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
    let parsed = match value.as_text() {
        Some(text) => parsed(text).map_err(|problem| format!("has `{name}` that {problem}"))?,
        None => value.clone(),
    };
    let Some(messages) = parsed.as_elements() else {
        return Err(format!("has a field `{name}` that is not a list of messages"));
    };
    for (number, message) in messages.iter().enumerate() {
        if role(message).is_none() {
            return Err(format!("has {name}[{number}] without a `role`"));
        }
    }
    Ok(messages.to_vec())
}

/// A question with its answer: the messages, and the first that is an answer.
fn pair(prompt: &Value, completion: &Value) -> Result<(Vec<Value>, usize), String> {
    match (prompt, completion) {
        (Value::Text(_), Value::Text(_)) => Ok((vec![message("user", prompt)?, message("assistant", completion)?], 1)),
        (prompt, completion) if prompt.as_text().is_none() && completion.as_text().is_none() => {
            let prompt = messages_of(prompt, "prompt")?;
            let first = prompt.len();
            Ok(([prompt, messages_of(completion, "completion")?].concat(), first))
        }
        _ => Err("has `prompt` and `completion` of which one is a string; use two strings or two lists".into()),
    }
}

/// A message of `role`.
fn message(role: &str, content: &Value) -> Result<Value, String> {
    let entries = [("role", Value::text(role)), ("content", content.clone())];
    let entries = entries.map(|(key, value)| (Value::text(key), value));
    Value::dict(entries).map_err(|_| "nests too deep".to_string())
}

/// The tools, which may be written as JSON in a string, together or each.
fn tools(value: Value) -> Result<Value, String> {
    let parsed: Value = match value.as_text() {
        Some(text) => parsed(text).map_err(|problem| format!("has a text `tools` that {problem}"))?,
        None => value,
    };
    let Some(elements) = parsed.as_elements() else {
        return Err("has a field `tools` that is not a list".into());
    };
    if elements.iter().all(|tool| tool.as_text().is_none()) {
        return Ok(parsed);
    }
    let tool = |(number, tool): (usize, &Value)| match tool.as_text() {
        Some(text) => self::parsed(text).map_err(|problem| format!("has a text tools[{number}] that {problem}")),
        None => Ok(tool.clone()),
    };
    let tools = elements.iter().enumerate().map(tool).collect::<Result<_, _>>()?;
    Value::list(tools).map_err(|_| "has `tools` that nest too deep".to_string())
}

/// Whether a message that may be an answer is learned, or the problem as the rest of a sentence.
fn is_learned(message: &Value) -> Result<bool, String> {
    let by_weight = match field(message, "weight") {
        None | Some(Value::None) | Some(Value::Int(1)) => true,
        Some(Value::Int(0)) => false,
        Some(Value::Float(weight)) if *weight == 0.0 || *weight == 1.0 => *weight == 1.0,
        Some(_) => return Err("a `weight` other than 0 and 1; use one of them".into()),
    };
    match field(message, "train") {
        None | Some(Value::None) | Some(Value::Bool(true)) => Ok(by_weight),
        Some(Value::Bool(false)) => Ok(false),
        Some(_) => Err("`train` that is not true or false; use one of them".into()),
    }
}

/// The role whose messages are answers.
const ASSISTANT: &str = "assistant";

/// Whether a message is an answer.
pub(super) fn is_answer(message: &Value) -> bool {
    role(message).as_deref() == Some(ASSISTANT)
}

/// The role of a message.
fn role(message: &Value) -> Option<String> {
    field(message, "role")?.as_text().map(str::to_string)
}
