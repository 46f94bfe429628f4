//! The filter `tojson`: `json.dumps` of Python without escapes for letters, as transformers defines it; and values from
//! JSON.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::arguments::{Given, count, is_set, text};
use super::meter::{Fault, fault};
use super::numbers::float_text;
use super::renderer::Renderer;
use super::value::Value;
use super::writer::{FLOAT_STEPS, TextBuilder};

/// The separators of items and keys, and the blanks of a line.
struct Layout {
    /// The fill of a level, and its count.
    indent: Option<(String, usize)>,
    between_items: String,
    after_key: String,
}

/// `value` as JSON. Of Python's arguments it knows `indent`, `separators` and `ensure_ascii = false`.
pub(super) fn filter(renderer: &mut Renderer<'_>, value: &Value, given: Given) -> Result<Value, Fault> {
    let [ensure_ascii, indent, separators, sort_keys] =
        given.bind("tojson", ["ensure_ascii", "indent", "separators", "sort_keys"])?;
    for (name, value) in [("ensure_ascii", &ensure_ascii), ("sort_keys", &sort_keys)] {
        if is_set(value) {
            return Err(fault(format!("tojson has no {name}; leave it out")));
        }
    }
    let indent = match indent {
        None | Some(Value::None) => None,
        Some(fill @ Value::Text(_)) => Some((text(&fill, "tojson", renderer.meter)?.to_string(), 1)),
        Some(indent) => Some((" ".into(), count(&indent, "tojson")?)),
    };
    let between_items = if indent.is_some() { "," } else { ", " };
    let (between_items, after_key) = match separators {
        None | Some(Value::None) => (between_items.to_string(), ": ".to_string()),
        Some(separators) => match renderer.elements(&separators)?.walk(renderer.meter)? {
            [items, key] => {
                (text(items, "tojson", renderer.meter)?.to_string(), text(key, "tojson", renderer.meter)?.to_string())
            }
            _ => return Err(fault("separators of tojson must be two strings")),
        },
    };
    let layout = Layout { indent, between_items, after_key };
    let mut out = TextBuilder::new(renderer.meter);
    layout.write(&mut out, value, 0).map_err(|error| match error {
        Fault::Says { text, line } => Fault::Says { text: format!("tojson: {text}"), line },
        Fault::Steps => Fault::Steps,
    })?;
    out.finish()
}

impl Layout {
    fn line(&self, out: &mut TextBuilder<'_>, depth: usize) -> Result<(), Fault> {
        if let Some((fill, count)) = &self.indent {
            out.push("\n")?;
            out.repeat(fill, count.saturating_mul(depth))?;
        }
        Ok(())
    }

    fn item(&self, out: &mut TextBuilder<'_>, place: usize, depth: usize) -> Result<(), Fault> {
        out.push(if place > 0 { &self.between_items } else { "" })?;
        self.line(out, depth)
    }

    fn write(&self, out: &mut TextBuilder<'_>, value: &Value, depth: usize) -> Result<(), Fault> {
        match value {
            Value::None => out.push("null"),
            Value::Bool(value) => out.push(if *value { "true" } else { "false" }),
            Value::Int(value) => out.push(&value.to_string()),
            Value::Float(value) => {
                out.meter().step(FLOAT_STEPS)?;
                out.push(&number(*value))
            }
            Value::Text(text) => quote(out, text),
            Value::List(list) => {
                out.push("[")?;
                for (place, element) in list.walk(out.meter())?.iter().enumerate() {
                    self.item(out, place, depth + 1)?;
                    self.write(out, element, depth + 1)?;
                }
                self.close(out, list.len(), depth, "]")
            }
            Value::Dict(dict) => {
                out.push("{")?;
                for (place, (key, value)) in dict.walk(out.meter())?.iter().enumerate() {
                    self.item(out, place, depth + 1)?;
                    self.key(out, key)?;
                    out.push(&self.after_key)?;
                    self.write(out, value, depth + 1)?;
                }
                self.close(out, dict.len(), depth, "}")
            }
            Value::Undefined
            | Value::Namespace(_)
            | Value::Macro(_)
            | Value::Loop(_)
            | Value::Function(_)
            | Value::Method(_) => Err(fault(format!("{} cannot be written as JSON", value.kind()))),
        }
    }

    fn close(&self, out: &mut TextBuilder<'_>, count: usize, depth: usize, bracket: &str) -> Result<(), Fault> {
        if count > 0 {
            self.line(out, depth)?;
        }
        out.push(bracket)
    }

    /// A key, which JSON writes as a string.
    fn key(&self, out: &mut TextBuilder<'_>, key: &Value) -> Result<(), Fault> {
        if let Value::Text(text) = key {
            return quote(out, text);
        }
        out.push("\"")?;
        self.write(out, key, 0)?;
        out.push("\"")
    }
}

/// A float as Python writes it into JSON.
fn number(value: f64) -> String {
    match (value.is_nan(), value.is_infinite(), value > 0.0) {
        (true, _, _) => "NaN".into(),
        (_, true, true) => "Infinity".into(),
        (_, true, false) => "-Infinity".into(),
        (false, false, _) => float_text(value),
    }
}

fn quote(out: &mut TextBuilder<'_>, text: &str) -> Result<(), Fault> {
    out.push("\"")?;
    let mut rest = text;
    while let Some(at) = rest.find(|letter: char| letter < ' ' || letter == '"' || letter == '\\') {
        out.push(&rest[..at])?;
        match rest.as_bytes()[at] {
            b'"' => out.push("\\\"")?,
            b'\\' => out.push("\\\\")?,
            b'\n' => out.push("\\n")?,
            b'\r' => out.push("\\r")?,
            b'\t' => out.push("\\t")?,
            8 => out.push("\\b")?,
            12 => out.push("\\f")?,
            code => {
                out.meter().step(1)?;
                out.push(&format!("\\u{code:04x}"))?;
            }
        }
        rest = &rest[at + 1..];
    }
    out.push(rest)?;
    out.push("\"")
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

/// Reads any JSON; objects keep their order.
struct Reader;

/// A problem as serde knows it.
fn problem<E: Error>(problem: Fault) -> E {
    match problem {
        Fault::Says { text, .. } => E::custom(text),
        Fault::Steps => E::custom("it has too many elements"),
    }
}

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::None)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Int(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Int(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut elements = vec![];
        while let Some(element) = list.next_element()? {
            elements.push(element);
        }
        elements.shrink_to_fit();
        Value::list(elements).map_err(problem)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = vec![];
        while let Some((key, value)) = map.next_entry::<Value, Value>()? {
            entries.push((key, value));
        }
        Value::dict(entries).map_err(problem)
    }
}
