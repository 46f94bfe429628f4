//! The objects of a JSON file that has them in one array, or one after the other over several lines.

use std::path::Path;

use crate::error::DataError;
use crate::text_source::Text;

/// The part of the file that comes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Next {
    #[default]
    Beginning,
    /// An object outside of an array, or the end of the file.
    Object,
    /// The first element of an array, or its end.
    FirstElement,
    /// The comma after an element, or the end of the array.
    Comma,
    Element,
    /// Nothing after the array.
    End,
}

/// How far a file was read.
#[derive(Clone, Debug, Default)]
pub(crate) struct JsonObjects {
    next: Next,
    /// Ends of lines before the place that is reached.
    line_ends: usize,
}

impl JsonObjects {
    /// The next object: the line in which it begins, counted from 1, its first byte in the file, and its text, which is
    /// JSON as far as braces and quotes go; `None` after the last.
    ///
    /// # Errors
    /// Something else than objects; one that is longer than a line may be.
    pub(crate) fn next_object(
        &mut self,
        text: &mut Text,
        path: &Path,
    ) -> Result<Option<(usize, usize, String)>, DataError> {
        loop {
            let byte = self.after_blank(text, path)?;
            let is_object = byte == Some(b'{');
            self.next = match (self.next, byte) {
                (Next::Beginning | Next::Object, Some(b'{')) => Next::Object,
                (Next::FirstElement | Next::Element, Some(b'{')) => Next::Comma,
                (Next::Beginning, Some(b'[')) => Next::FirstElement,
                (Next::Comma, Some(b',')) => Next::Element,
                (Next::FirstElement | Next::Comma, Some(b']')) => Next::End,
                (Next::Beginning | Next::Object | Next::End, None) => return Ok(None),
                (Next::FirstElement | Next::Comma | Next::Element, None) => {
                    return Err(self.wrong(text, path, "ends within an array"));
                }
                (Next::Comma, Some(_)) => return Err(self.wrong(text, path, "has no comma after an object")),
                (Next::End, Some(_)) => return Err(self.wrong(text, path, "continues after its array")),
                (Next::Beginning | Next::Object | Next::FirstElement | Next::Element, Some(_)) => {
                    return Err(self.wrong(text, path, "has something else than an object"));
                }
            };
            if is_object {
                return self.object(text, path).map(Some);
            }
            text.take(1);
        }
    }

    /// The first byte that is not blank.
    fn after_blank(&mut self, text: &mut Text, path: &Path) -> Result<Option<u8>, DataError> {
        while text.reaches_after(path, self.line_ends + 1, 0)? {
            match text.rest()[0] {
                byte if !byte.is_ascii_whitespace() => return Ok(Some(byte)),
                byte => self.line_ends += usize::from(byte == b'\n'),
            }
            text.take(1);
        }
        Ok(None)
    }

    /// The object that begins with the next byte.
    fn object(&mut self, text: &mut Text, path: &Path) -> Result<(usize, usize, String), DataError> {
        let (line, offset) = (self.line_ends + 1, text.offset);
        let (mut at, mut depth, mut in_string) = (0, 0_usize, false);
        loop {
            if !text.reaches_after(path, line, at)? {
                return Err(self.wrong(text, path, "ends within an object"));
            }
            match text.rest()[at] {
                b'"' => in_string = !in_string,
                // The next byte is part of the string, whatever it is.
                b'\\' if in_string => at += 1,
                b'{' | b'[' if !in_string => depth += 1,
                b'}' | b']' if !in_string => depth -= 1,
                _ => {}
            }
            at += 1;
            if depth == 0 {
                break;
            }
        }
        let own = text.take_text(path, at)?.to_string();
        self.line_ends += own.bytes().filter(|byte| *byte == b'\n').count();
        Ok((line, offset, own))
    }

    fn wrong(&self, text: &Text, path: &Path, problem: &'static str) -> DataError {
        DataError::NotObjects { path: path.to_path_buf(), line: self.line_ends + 1, offset: text.offset, problem }
    }
}
