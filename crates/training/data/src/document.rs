//! Texts with their names.

use std::ops::Range;

/// One text with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Name for messages: a path, with the line after it for lines of JSON.
    pub name: String,
    pub text: String,
}

/// A conversation as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// The whole conversation.
    pub document: Document,
    /// Bytes of the text that are answers, ascending; the other bytes are not learned.
    pub answers: Vec<Range<usize>>,
}
