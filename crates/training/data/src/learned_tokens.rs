//! Columns next to tokens, by which some of the tokens may not be learned.

use std::fmt;

/// The tokens to learn, with other numbers in the other places; and a 1 for each token, a 0 for padding.
pub(crate) const LEARNED_TOKENS: [&str; 2] = ["labels", "attention_mask"];

/// Whether the numbers of `column` next to `tokens` say that all of them are learned.
pub(crate) fn agrees(column: &str, tokens: &[u32], numbers: &[u32]) -> bool {
    if column == LEARNED_TOKENS[0] { tokens == numbers } else { numbers.iter().all(|number| *number == 1) }
}

/// The message about tokens next to a column that leaves some of them out.
pub(crate) struct PartlyLearned(pub(crate) &'static str);

impl fmt::Display for PartlyLearned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` by which some of its tokens are not learned, and tokens of a column are all learned; name the column of \
             tokens by `column` to learn all of them, or train on conversations with data.chat",
            self.0
        )
    }
}
