//! Marks of answers in a text while it is rendered.

/// A mark before an answer: a code point that is for no text.
pub(super) const ANSWER_BEGINS: char = '\u{fdd0}';
/// A mark after an answer.
pub(super) const ANSWER_ENDS: char = '\u{fdd1}';
