//! Columns next to tokens.

/// Columns next to tokens that say which of them are learned, and which are there.
pub(crate) const BESIDE_TOKENS: [&str; 2] = ["labels", "attention_mask"];

/// Whether the numbers of `column` next to `tokens` say that all of them are learned.
pub(crate) fn agrees(column: &str, tokens: &[u32], numbers: &[u32]) -> bool {
    if column == BESIDE_TOKENS[0] { tokens == numbers } else { numbers.iter().all(|number| *number == 1) }
}
