//! The tokens of a prompt.

use crate::failure::Failure;
use data::Tokenizer;

/// The tokens of `text` after those that begin a document, of a model with `vocabulary` tokens. A text that begins with
/// them gets no second ones.
///
/// # Errors
/// A text without tokens, or with one that the model does not have.
pub fn prompt(tokenizer: &Tokenizer, text: &str, vocabulary: usize) -> Result<Vec<i32>, Failure> {
    // Without a prompt, a text begins where a line has ended.
    let text = if text.is_empty() { "\n" } else { text };
    let tokens =
        tokenizer.encode(text).map_err(|error| Failure::Input(format!("the prompt has no tokens: {error}")))?;
    let tokens = if tokens.starts_with(tokenizer.begin()) { tokens } else { [tokenizer.begin(), &tokens].concat() };
    if tokens.is_empty() {
        let remedy = "use at least one character, such as --prompt \" \"";
        return Err(Failure::Input(format!("the prompt is empty; {remedy}")));
    }
    if let Some(outside) = tokens.iter().find(|token| **token as usize >= vocabulary) {
        return Err(Failure::Input(format!(
            "token {outside} of the prompt is outside model.vocabulary = {vocabulary}; give the tokenizer of the run"
        )));
    }
    // A vocabulary is below 2^31 wherever it is read.
    Ok(tokens.into_iter().map(|token| token as i32).collect())
}
