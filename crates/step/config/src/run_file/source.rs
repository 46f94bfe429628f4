//! The text of a run file and its overrides, as values that know where they were written.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::declared;
use super::nearest::nearest;
use super::unsupported;
use crate::problem::{Location, Problem};
use crate::secret::shown_setting;

/// Sections of a run file, in the order in which they are written.
pub const SECTIONS: [&str; 5] = ["model", "parallelism", "train", "data", "run"];

/// A value as it was written.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Whole number.
    Integer(i128),
    /// Number with a point or an exponent.
    Float(f64),
    /// `true` or `false`.
    Boolean(bool),
    /// String.
    Text(String),
    /// Array.
    List(Vec<Value>),
    /// Inline table, its keys in order.
    Table(Vec<(String, Value)>),
    /// A value that no key takes: a date.
    Other(&'static str),
}

/// Each as its type, or `None` for a value of another.
impl Value {
    /// A whole number.
    pub fn integer(&self) -> Option<i128> {
        if let Value::Integer(number) = self { Some(*number) } else { None }
    }

    /// A finite number, whole or not.
    pub fn number(&self) -> Option<f32> {
        let whole = self.integer().map(|number| number as f32);
        let float = if let Value::Float(number) = self { Some(*number as f32) } else { None };
        whole.or(float.filter(|number| number.is_finite()))
    }

    /// `true` or `false`.
    pub fn boolean(&self) -> Option<bool> {
        if let Value::Boolean(value) = self { Some(*value) } else { None }
    }

    /// A string.
    pub fn text(&self) -> Option<&str> {
        if let Value::Text(text) = self { Some(text) } else { None }
    }

    /// The items of a list.
    pub fn list(&self) -> Option<&[Value]> {
        if let Value::List(values) = self { Some(values) } else { None }
    }

    /// Whether it has an address of another machine in it.
    pub fn has_address(&self) -> bool {
        self.to_string().contains("://")
    }

    /// The entries of a table.
    pub fn table(&self) -> Option<&[(String, Value)]> {
        if let Value::Table(entries) = self { Some(entries) } else { None }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Integer(value) => write!(f, "{value}"),
            Value::Float(value) => write!(f, "{value:?}"),
            Value::Boolean(value) => write!(f, "{value}"),
            Value::Text(value) => write!(f, "{value:?}"),
            Value::List(values) => {
                let values: Vec<String> = values.iter().map(Value::to_string).collect();
                write!(f, "[{}]", values.join(", "))
            }
            Value::Table(entries) if entries.is_empty() => write!(f, "{{}}"),
            Value::Table(entries) => {
                let entries: Vec<String> = entries.iter().map(|(key, value)| format!("{key} = {value}")).collect();
                write!(f, "{{ {} }}", entries.join(", "))
            }
            Value::Other(kind) => write!(f, "({kind})"),
        }
    }
}

/// A value and where it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub value: Value,
    /// Its place.
    pub location: Location,
}

/// All entries by `section.key`.
pub type Entries = BTreeMap<String, Entry>;

/// Reads TOML. `name` is the file's name in messages.
///
/// # Errors
/// Every syntax error, or every section that is not one.
pub fn parse(name: &str, text: &str) -> (Entries, Vec<Problem>) {
    let (table, errors) = DeTable::parse_recoverable(text);
    let lines = Lines::of(text);
    let at = |span: Range<usize>| lines.location(name, span.start);
    let mut entries = Entries::new();
    let mut problems: Vec<Problem> = errors
        .iter()
        .map(|error| {
            let rule = format!("is not TOML: {}", error.message());
            Problem::of_key("this", rule, "").at(Some(at(error.span().unwrap_or(0..0))))
        })
        .collect();
    if !problems.is_empty() {
        return (entries, problems);
    }
    for (section, value) in table.get_ref() {
        let here = Some(at(section.span()));
        let section = section.get_ref().as_ref();
        match value.get_ref() {
            DeValue::Table(keys) if SECTIONS.contains(&section) => {
                for (key, value) in keys {
                    let entry = Entry { value: convert(value.get_ref()), location: at(key.span()) };
                    entries.insert(format!("{section}.{}", key.get_ref()), entry);
                }
            }
            DeValue::Table(_) => problems.push(unknown_section(section).at(here)),
            DeValue::String(_)
            | DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_) => problems.push(stray_key(section).at(here)),
        }
    }
    (entries, problems)
}

fn unknown_section(section: &str) -> Problem {
    if let Some(problem) = unsupported::problem(&format!("[{section}]"), section) {
        return problem;
    }
    let remedy = match nearest(section, SECTIONS) {
        Some(near) => format!("did you mean [{near}]?"),
        None => format!("there are {}", SECTIONS.map(|section| format!("[{section}]")).join(", ")),
    };
    Problem::of_key(&format!("[{section}]"), "is not a section", remedy)
}

fn stray_key(key: &str) -> Problem {
    let reader = declared();
    match (reader.meaning(key), reader.section_of(key)) {
        (Some(meaning), _) => Problem::of_key(&format!("`{key}`"), meaning, ""),
        (None, Some(section)) => Problem::of_key(&format!("`{key}`"), format!("belongs to [{section}]"), ""),
        (None, None) => unsupported::problem(&format!("`{key}`"), key)
            .unwrap_or_else(|| Problem::of_key(&format!("`{key}`"), "is outside any section", "write it below one")),
    }
}

fn convert(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(number) => match i128::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Value::Integer(number),
            Err(_) => Value::Other("a number of more than 38 digits"),
        },
        DeValue::Float(number) => number.as_str().parse().map_or(Value::Other("a number"), Value::Float),
        DeValue::Boolean(value) => Value::Boolean(*value),
        DeValue::Array(values) => Value::List(values.iter().map(|value| convert(value.get_ref())).collect()),
        DeValue::Datetime(_) => Value::Other("a date"),
        DeValue::Table(entries) => Value::Table(
            entries.iter().map(|(key, value)| (key.get_ref().to_string(), convert(value.get_ref()))).collect(),
        ),
    }
}

/// The lines of a text, found once for all places in it.
struct Lines<'a> {
    text: &'a str,
    /// Where each line begins.
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Lines<'a> {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Lines { text, starts }
    }

    fn location(&self, name: &str, offset: usize) -> Location {
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = line.checked_sub(1).map_or(0, |index| self.starts[index]);
        let column = self.text.get(start..offset).unwrap_or_default().chars().count() + 1;
        Location::File { name: name.into(), line, column }
    }
}

/// Reads `section.key=value` overrides into `entries`; later ones win. A value that is not TOML is taken as a string,
/// so that `model.norm=rms` needs no quotes. `section.key=` takes the key out, as if the file did not say it.
pub fn apply_overrides(overrides: &[String], entries: &mut Entries) -> Vec<Problem> {
    let mut problems = Vec::new();
    for text in overrides {
        let location = Location::Override(shown_setting(text));
        match split_override(text) {
            Ok((key, Some(value))) => {
                entries.insert(key, Entry { value, location });
            }
            Ok((key, None)) => {
                entries.remove(&key);
            }
            Err(problem) => problems.push((*problem).at(Some(location))),
        }
    }
    problems
}

fn split_override(text: &str) -> Result<(String, Option<Value>), Box<Problem>> {
    let Some((key, value)) = text.split_once('=') else {
        let key = text.trim();
        return Err(Box::new(match declared().meaning(key) {
            Some(meaning) => Problem::of_key(&format!("`{key}`"), meaning, ""),
            None => Problem::of_key("this", "has no `=`", "write section.key=value"),
        }));
    };
    let (key, value) = (key.trim(), value.trim());
    let Some((section, name)) = key.split_once('.') else { return Err(Box::new(stray_override(key))) };
    if !SECTIONS.contains(&section) {
        return Err(Box::new(unknown_section(section)));
    }
    // Unknown keys are kept, so that they are reported.
    if value.is_empty() && declared().section_of(name) == Some(section) {
        return Ok((key.into(), None));
    }
    let value = DeValue::parse(value).map_or_else(|_| Value::Text(value.into()), |value| convert(value.get_ref()));
    Ok((key.into(), Some(value)))
}

fn stray_override(key: &str) -> Problem {
    let reader = declared();
    match (reader.meaning(key), reader.section_of(key)) {
        (Some(meaning), _) => Problem::of_key(&format!("`{key}`"), meaning, ""),
        (None, Some(section)) => {
            Problem::of_key(&format!("`{key}`"), "has no section", format!("write {section}.{key}"))
        }
        (None, None) => unsupported::problem(&format!("`{key}`"), key)
            .unwrap_or_else(|| Problem::of_key(&format!("`{key}`"), "has no section", "write section.key=value")),
    }
}
