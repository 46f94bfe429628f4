//! Writes a resolved run file, line by line.

use std::fmt::{Display, Write as _};

/// A run file in the making.
#[derive(Debug, Default)]
pub struct Writer {
    text: String,
}

impl Writer {
    /// Begins a section.
    pub fn section(&mut self, name: &str) {
        let gap = if self.text.is_empty() { "" } else { "\n" };
        self.bare_line(&format!("{gap}[{name}]"));
    }

    /// `key = value`, the value unchanged.
    pub fn bare(&mut self, key: &str, value: &str) {
        self.bare_line(&format!("{key} = {value}"));
    }

    /// A whole number.
    pub fn count(&mut self, key: &str, value: impl Display) {
        self.bare(key, &value.to_string());
    }

    /// A number with the fewest digits that give the same 32 bits again.
    pub fn number(&mut self, key: &str, value: f32) {
        self.bare(key, &format!("{value:?}"));
    }

    /// A power of two, to the last digit, so that it is one in 64 bits, too.
    pub fn power_of_two(&mut self, key: &str, value: f32) {
        self.bare(key, &format!("{value:.1}"));
    }

    /// `true` or `false`.
    pub fn yes_no(&mut self, key: &str, value: bool) {
        self.bare(key, &value.to_string());
    }

    /// A string, quoted and escaped.
    pub fn text(&mut self, key: &str, value: &str) {
        self.bare(key, &toml::Value::String(value.into()).to_string());
    }

    /// The file.
    pub fn finish(self) -> String {
        self.text
    }

    fn bare_line(&mut self, line: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{line}");
    }
}
