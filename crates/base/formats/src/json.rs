//! Values of nested columns as JSON text.

use std::fmt::Write;

use crate::error::Problem;
use crate::growth::Growth;
use crate::kinds::Cell;

/// The most bytes of the JSON of a row.
pub(crate) const MOST_BYTES: u64 = 256 << 20;

/// The JSON text of a row, as far as it is written.
#[derive(Debug, Default)]
pub(crate) struct JsonText {
    text: String,
    counted_bytes: usize,
}

impl JsonText {
    /// Writes a mark of JSON such as `{`.
    pub fn mark(&mut self, mark: char) {
        self.text.push(mark);
    }

    /// Writes the value of a field that is null, or an element of a list.
    pub fn null(&mut self) {
        self.text.push_str("null");
    }

    /// Appends `true` or `false`.
    pub fn boolean(&mut self, value: bool) {
        self.text.push_str(if value { "true" } else { "false" });
    }

    /// Appends a whole number.
    pub fn integer(&mut self, value: i128) {
        // Writing to a string has no errors.
        let _ = write!(self.text, "{value}");
    }

    /// Writes a number with the digits that distinguish it from others.
    ///
    /// # Errors
    /// Infinities and NaN, which JSON does not have.
    pub fn float(&mut self, value: f64) -> Result<(), Problem> {
        if !value.is_finite() {
            let (what, remedy) = (format!("{value} in a nested column"), "write null or a finite number in its place");
            return Err(Problem::Unsupported { what, remedy });
        }
        let _ = write!(self.text, "{value:?}");
        Ok(())
    }

    /// Writes `bytes` as a string between quotes.
    ///
    /// # Errors
    /// Bytes that are not UTF-8.
    pub fn string(&mut self, bytes: &[u8]) -> Result<(), Problem> {
        let value = std::str::from_utf8(bytes)
            .map_err(|error| Problem::damaged(format!("a string is not UTF-8 at its byte {}", error.valid_up_to())))?;
        self.text.push('"');
        let mut written = 0;
        for (at, byte) in value.bytes().enumerate().filter(|(_, byte)| matches!(byte, b'"' | b'\\' | ..0x20)) {
            self.text.push_str(&value[written..at]);
            written = at + 1;
            match byte {
                b'"' => self.text.push_str("\\\""),
                b'\\' => self.text.push_str("\\\\"),
                b'\n' => self.text.push_str("\\n"),
                b'\r' => self.text.push_str("\\r"),
                b'\t' => self.text.push_str("\\t"),
                control => {
                    let _ = write!(self.text, "\\u{control:04x}");
                }
            }
        }
        self.text.push_str(&value[written..]);
        self.text.push('"');
        Ok(())
    }

    /// The place that is reached, to which [`JsonText::cut`] returns.
    pub fn place(&self) -> usize {
        self.text.len()
    }

    /// Removes all that was written after `place`.
    pub fn cut(&mut self, place: usize) {
        self.text.truncate(place);
        self.counted_bytes = self.counted_bytes.min(place);
    }

    /// Writes the name of a field of an object, after a comma if it is not the first.
    ///
    /// # Errors
    /// See [`JsonText::string`].
    pub fn field(&mut self, name: &str) -> Result<(), Problem> {
        if !self.text.ends_with('{') {
            self.text.push(',');
        }
        self.string(name.as_bytes())?;
        self.text.push(':');
        Ok(())
    }

    /// Counts the bytes that were written since the last count, and `more` of values that leave none.
    ///
    /// # Errors
    /// More bytes than a row or the file may hold.
    pub fn count(&mut self, more: u64, growth: &mut Growth) -> Result<(), Problem> {
        let bytes = self.text.len() as u64;
        if bytes > MOST_BYTES {
            return Err(Problem::TooLarge { what: "the JSON of a row", bytes, limit_bytes: MOST_BYTES });
        }
        growth.add(more.saturating_add((self.text.len() - self.counted_bytes) as u64))?;
        self.counted_bytes = self.text.len();
        Ok(())
    }

    /// The row.
    ///
    /// # Errors
    /// See [`JsonText::count`].
    pub fn finish(mut self, growth: &mut Growth) -> Result<Cell, Problem> {
        self.count(0, growth)?;
        Ok(Cell::Text(self.text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped_and_numbers_keep_their_value() {
        let mut json = JsonText::default();
        json.mark('{');
        json.field("a\"b").expect("a name");
        json.string("q\" b\\ n\n t\t ü\u{1}".as_bytes()).expect("text");
        json.field("c").expect("a name");
        json.float(1.0).expect("finite");
        json.mark('}');
        let mut growth = Growth::of_file(0);
        let expected = "{\"a\\\"b\":\"q\\\" b\\\\ n\\n t\\t ü\\u0001\",\"c\":1.0}";
        assert!(json.float(f64::NAN).is_err() && json.string(b"\xff").is_err());
        let place = expected.len();
        json.cut(place);
        assert_eq!(json.finish(&mut growth), Ok(Cell::Text(expected.into())));
    }
}
