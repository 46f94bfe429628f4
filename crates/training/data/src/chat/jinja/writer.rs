//! Texts under construction, and values as Python's `str` and `repr` write them.

use super::meter::{Fault, MOST_BYTES, Meter, fault};
use super::numbers::float_text;
use super::value::{Form, Value};

/// The price of an addition, which may have few bytes.
const UNITS_PER_PUSH: usize = 16;

/// Steps of the digits of a float.
pub(super) const FLOAT_STEPS: usize = 16;

/// A text that pays for its bytes.
pub(super) struct TextBuilder<'m> {
    meter: &'m Meter,
    text: String,
}

impl<'m> TextBuilder<'m> {
    pub(super) fn new(meter: &'m Meter) -> TextBuilder<'m> {
        TextBuilder { meter, text: String::new() }
    }

    pub(super) fn meter(&self) -> &'m Meter {
        self.meter
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// # Errors
    /// A text that gets too long, and too few steps for it.
    pub(super) fn push(&mut self, more: &str) -> Result<(), Fault> {
        self.reserve(more.len())?;
        self.text.push_str(more);
        Ok(())
    }

    pub(super) fn push_char(&mut self, more: char) -> Result<(), Fault> {
        self.reserve(more.len_utf8())?;
        self.text.push(more);
        Ok(())
    }

    /// `more`, `count` times.
    pub(super) fn repeat(&mut self, more: &str, count: usize) -> Result<(), Fault> {
        self.reserve(more.len().saturating_mul(count))?;
        if !more.is_empty() {
            self.text.extend(std::iter::repeat_n(more, count));
        }
        Ok(())
    }

    fn reserve(&mut self, more: usize) -> Result<(), Fault> {
        if self.text.len().saturating_add(more) > MOST_BYTES {
            return Err(fault(format!("it makes more than {MOST_BYTES} bytes")));
        }
        self.meter.read(UNITS_PER_PUSH)?;
        self.meter.write(more)
    }

    pub(super) fn finish(self) -> Result<Value, Fault> {
        self.meter.step(1)?;
        Ok(Value::Text(self.text.into()))
    }

    pub(super) fn into_string(self) -> String {
        self.text
    }

    /// `value` as `str` writes it.
    pub(super) fn print(&mut self, value: &Value) -> Result<(), Fault> {
        match value {
            Value::Text(text) => self.push(text),
            Value::Undefined => Ok(()),
            Value::None
            | Value::Bool(_)
            | Value::Int(_)
            | Value::Float(_)
            | Value::List(_)
            | Value::Dict(_)
            | Value::Namespace(_)
            | Value::Macro(_)
            | Value::Loop(_)
            | Value::Function(_)
            | Value::Method(_) => self.print_quoted(value),
        }
    }

    /// `value` as `repr` writes it.
    pub(super) fn print_quoted(&mut self, value: &Value) -> Result<(), Fault> {
        match value {
            Value::Undefined => self.push("Undefined"),
            Value::None => self.push("None"),
            Value::Bool(value) => self.push(if *value { "True" } else { "False" }),
            Value::Int(value) => self.push(&value.to_string()),
            Value::Float(value) => {
                self.meter.step(FLOAT_STEPS)?;
                self.push(&float_text(*value))
            }
            Value::Text(text) => self.quote(text),
            Value::List(list) => {
                let (opening, closing) = match list.form() {
                    Form::List => ("[", "]"),
                    Form::Tuple => ("(", ")"),
                };
                self.push(opening)?;
                for (place, element) in list.walk(self.meter)?.iter().enumerate() {
                    self.push(if place > 0 { ", " } else { "" })?;
                    self.print_quoted(element)?;
                }
                self.push(if list.form() == Form::Tuple && list.len() == 1 { "," } else { "" })?;
                self.push(closing)
            }
            Value::Dict(dict) => {
                self.push("{")?;
                for (place, (key, value)) in dict.walk(self.meter)?.iter().enumerate() {
                    self.push(if place > 0 { ", " } else { "" })?;
                    self.print_quoted(key)?;
                    self.push(": ")?;
                    self.print_quoted(value)?;
                }
                self.push("}")
            }
            Value::Namespace(_) | Value::Macro(_) | Value::Loop(_) | Value::Function(_) | Value::Method(_) => {
                Err(fault(format!("{} cannot be written as text", value.kind())))
            }
        }
    }

    /// `text` in quotes, as `repr` escapes it.
    fn quote(&mut self, text: &str) -> Result<(), Fault> {
        let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
        self.push_char(quote)?;
        for letter in text.chars() {
            match letter {
                '\n' => self.push("\\n")?,
                '\r' => self.push("\\r")?,
                '\t' => self.push("\\t")?,
                '\\' => self.push("\\\\")?,
                _ if letter == quote => {
                    self.push("\\")?;
                    self.push_char(letter)?;
                }
                _ if is_printable(letter) => self.push_char(letter)?,
                _ => {
                    self.meter.step(1)?;
                    self.push(&escape(letter))?;
                }
            }
        }
        self.push_char(quote)
    }
}

/// Whether Python's `repr` writes a letter as it is. Of the letters outside of ASCII it escapes controls and spaces.
fn is_printable(letter: char) -> bool {
    match letter {
        ' ' => true,
        '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' => false,
        '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..='\u{fffb}' | '\u{f0000}'.. => false,
        _ => !letter.is_control() && !letter.is_whitespace(),
    }
}

fn escape(letter: char) -> String {
    match u32::from(letter) {
        code @ ..=0xff => format!("\\x{code:02x}"),
        code @ ..=0xffff => format!("\\u{code:04x}"),
        code => format!("\\U{code:08x}"),
    }
}

/// `value` as a text.
pub(super) fn text_of(value: &Value, meter: &Meter) -> Result<Value, Fault> {
    if let Value::Text(_) = value {
        return Ok(value.clone());
    }
    let mut text = TextBuilder::new(meter);
    text.print(value)?;
    text.finish()
}
