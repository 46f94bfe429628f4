//! The filter `tojson` of chat templates: `json.dumps` of Python without escapes for letters, as transformers defines
//! it.

use std::io;

use minijinja::value::Kwargs;
use minijinja::{Error, ErrorKind, State, Value};
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

use super::template::MOST_BYTES;

/// The separators of items and keys, and the depth at which a line begins.
struct Layout {
    indent: Option<usize>,
    between_items: String,
    after_key: String,
    depth: usize,
    has_items: bool,
}

/// `value` as JSON. Of Python's arguments it knows `indent`, `separators` and `ensure_ascii = false`.
pub(super) fn filter(state: &State<'_, '_>, value: Value, named: Kwargs) -> Result<String, Error> {
    let refused = |reason: &str| Error::new(ErrorKind::InvalidOperation, reason.to_string());
    let indent: Option<usize> = named.get("indent")?;
    let separators: Option<Vec<String>> = named.get("separators")?;
    for (name, value) in
        [("ensure_ascii", named.get::<Option<bool>>("ensure_ascii")?), ("sort_keys", named.get("sort_keys")?)]
    {
        if value == Some(true) {
            return Err(refused(&format!("tojson has no {name}; leave it out")));
        }
    }
    named.assert_all_used()?;
    let own = if indent.is_some() { "," } else { ", " };
    let (between_items, after_key) = match separators.as_deref() {
        None => (own.to_string(), ": ".to_string()),
        Some([items, key]) => (items.clone(), key.clone()),
        Some(_) => return Err(refused("separators of tojson must be two strings")),
    };
    let layout = Layout { indent, between_items, after_key, depth: 0, has_items: false };
    let mut written = Bounded::default();
    value
        .serialize(&mut Serializer::with_formatter(&mut written, layout))
        .map_err(|error| refused(&format!("tojson: {error}")))?;
    let text = String::from_utf8(written.bytes).map_err(|_| refused("tojson made no UTF-8"))?;
    state.consume_fuel(text.len() as u64 / 64)?;
    Ok(text)
}

/// What is written, no longer than a conversation may be as text: a template chooses the width of an indent.
#[derive(Default)]
struct Bounded {
    bytes: Vec<u8>,
}

impl io::Write for Bounded {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        if self.bytes.len().saturating_add(more.len()) > MOST_BYTES {
            return Err(io::Error::other(format!("it makes more than {MOST_BYTES} bytes")));
        }
        self.bytes.extend_from_slice(more);
        Ok(more.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Spaces that are written at a time.
const SPACES: [u8; 64] = [b' '; 64];

impl Layout {
    fn line<W: ?Sized + io::Write>(&self, writer: &mut W) -> io::Result<()> {
        if let Some(indent) = self.indent {
            writer.write_all(b"\n")?;
            let mut left = indent.saturating_mul(self.depth);
            while left > 0 {
                let count = left.min(SPACES.len());
                writer.write_all(&SPACES[..count])?;
                left -= count;
            }
        }
        Ok(())
    }

    fn open<W: ?Sized + io::Write>(&mut self, writer: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth += 1;
        self.has_items = false;
        writer.write_all(bracket)
    }

    fn close<W: ?Sized + io::Write>(&mut self, writer: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth -= 1;
        if self.has_items {
            self.line(writer)?;
        }
        self.has_items = true;
        writer.write_all(bracket)
    }

    fn item<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if !first {
            writer.write_all(self.between_items.as_bytes())?;
        }
        self.line(writer)
    }
}

impl Formatter for Layout {
    fn begin_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open(writer, b"[")
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, b"]")
    }

    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.item(writer, first)
    }

    fn end_array_value<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.has_items = true;
        Ok(())
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open(writer, b"{")
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, b"}")
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.item(writer, first)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(self.after_key.as_bytes())
    }

    fn end_object_value<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.has_items = true;
        Ok(())
    }

    /// As Python's `repr`: an exponent has a sign and two digits, and begins below 1e-4 and from 1e16 on.
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        let scientific = format!("{value:e}");
        let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
        let exponent: i32 = exponent.parse().unwrap_or_default();
        if value != 0.0 && !(-4..16).contains(&exponent) {
            let sign = if exponent < 0 { '-' } else { '+' };
            return write!(writer, "{mantissa}e{sign}{:02}", exponent.abs());
        }
        write!(writer, "{value:?}")
    }
}

#[cfg(test)]
mod tests {
    use minijinja::{Environment, Value, context};

    fn dumped(json: &str, arguments: &str) -> String {
        let mut environment = Environment::new();
        environment.add_filter("tojson", super::filter);
        let value: Value = serde_json::from_str(json).expect("JSON");
        let template = format!("{{{{ value|tojson{arguments} }}}}");
        environment.render_str(&template, context! { value => value }).unwrap_or_else(|error| error.to_string())
    }

    #[test]
    fn json_is_that_of_python() {
        let json = r#"{"b": [1, 2.0, 1e16, 1e-5, 0.0001, -0.0, {}, []], "a": {"é": null, "<": "\n\"\u0001\u007f"}, "c": true}"#;
        // json.dumps(value, ensure_ascii=False), and with indent=2, with separators=(",", ":").
        assert_eq!(
            dumped(json, ""),
            r#"{"b": [1, 2.0, 1e+16, 1e-05, 0.0001, -0.0, {}, []], "a": {"é": null, "<": "\n\"\u0001"#.to_string()
                + "\u{7f}\"}, \"c\": true}"
        );
        assert_eq!(
            dumped(r#"{"b": [1, [], {"x": {}}], "a": {}}"#, "(indent=2)"),
            "{\n  \"b\": [\n    1,\n    [],\n    {\n      \"x\": {}\n    }\n  ],\n  \"a\": {}\n}"
        );
        assert_eq!(dumped(r#"{"b": [1, 2], "a": {}}"#, "(separators=(',', ':'))"), r#"{"b":[1,2],"a":{}}"#);
        assert!(
            dumped("1", "(sort_keys=true)").contains("tojson has no sort_keys"),
            "{}",
            dumped("1", "(sort_keys=true)")
        );
    }
}
