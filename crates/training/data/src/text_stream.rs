//! The text of tokens that come one by one.

use crate::tokenizer::Tokenizer;

/// Tokens of the text before that are decoded with the first new one: a decoder may join words, or take a space away
/// where a text begins.
const TOKENS_BEFORE: usize = 8;

/// The replacement for bytes that are not a character, or not yet.
const REPLACEMENT: char = '\u{fffd}';

/// Text that continues other text, in parts that end with whole characters.
///
/// The text of new tokens is what the decoder makes of them and of the tokens before, without what it makes of the
/// latter alone. Where new tokens change the text of those before, as bytes do that turn out to be no character, they
/// are decoded by themselves: text that is given out stays.
#[derive(Debug)]
pub struct TextStream<'a> {
    tokenizer: &'a Tokenizer,
    tokens: Vec<u32>,
    /// Tokens from here to `given_out` are decoded with the new ones.
    from: usize,
    /// Tokens before this one have their text given out.
    given_out: usize,
    /// Text that is given out and for which the streamer of transformers still waits.
    waiting: String,
}

impl<'a> TextStream<'a> {
    /// The text after `before`, which is a whole text in tokens of `tokenizer`, or its end.
    pub fn after(tokenizer: &'a Tokenizer, before: &[u32]) -> TextStream<'a> {
        let tokens = before[before.len().saturating_sub(TOKENS_BEFORE)..].to_vec();
        let given_out = tokens.len();
        // Text that the library does not decode is reported when more is added to it.
        let text = tokenizer.decode(&tokens).unwrap_or_default();
        TextStream { tokenizer, waiting: waiting_of(&text), tokens, from: 0, given_out }
    }

    /// The text that is whole with `token`: empty while it may end within a character.
    ///
    /// # Errors
    /// The error of the tokenizer's library.
    pub fn push(&mut self, token: u32) -> Result<String, String> {
        self.tokens.push(token);
        let text = self.new_text()?;
        if text.is_empty() || text.ends_with(REPLACEMENT) {
            return Ok(String::new());
        }
        let waiting = format!("{}{text}", self.waiting);
        // Later bytes may turn those of one run into replacements. The streamer of transformers takes nothing back that
        // it has printed, so the text of a byte goes out where that streamer prints it.
        if self.tokenizer.is_byte(token) && !is_printed(&waiting) {
            return Ok(String::new());
        }
        self.waiting = waiting_of(&waiting);
        self.given_out = self.tokens.len();
        self.from = self.given_out.saturating_sub(TOKENS_BEFORE);
        Ok(text)
    }

    /// The text that is still held back, with a replacement for each byte that is not a character.
    ///
    /// # Errors
    /// The error of the tokenizer's library.
    pub fn finish(self) -> Result<String, String> {
        if self.given_out == self.tokens.len() { Ok(String::new()) } else { self.new_text() }
    }

    fn new_text(&self) -> Result<String, String> {
        let before = self.tokenizer.decode(&self.tokens[self.from..self.given_out])?;
        let all = self.tokenizer.decode(&self.tokens[self.from..])?;
        match all.strip_prefix(&before) {
            Some(new) => Ok(new.to_string()),
            None => self.tokenizer.decode(&self.tokens[self.given_out..]),
        }
    }
}

/// The end of `text` that the streamer of transformers does not print before more follows.
fn waiting_of(text: &str) -> String {
    let after_space = text.rsplit_once(' ').map_or(text, |(_, after)| after);
    if is_printed(text) { String::new() } else { after_space.into() }
}

/// Whether the streamer of transformers prints text that waits: letters, digits and blanks at once, and everything at a
/// space, a line end or an ideograph.
fn is_printed(waiting: &str) -> bool {
    let ideographs =
        ['\u{3400}'..='\u{4dbf}', '\u{4e00}'..='\u{9fff}', '\u{f900}'..='\u{faff}', '\u{20000}'..='\u{2fa1f}'];
    let is_ideograph = |letter: char| ideographs.iter().any(|range| range.contains(&letter));
    // Separators of records and units are blanks in Python.
    let is_blank = |letter: char| letter.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&letter);
    let is_plain = |letter: char| letter.is_alphanumeric() || is_blank(letter);
    waiting.ends_with([' ', '\n']) || waiting.ends_with(is_ideograph) || waiting.chars().all(is_plain)
}

impl Tokenizer {
    /// The text of `tokens` where they continue the text of `before`.
    ///
    /// # Errors
    /// The error of the library.
    pub fn continuation(&self, before: &[u32], tokens: &[u32]) -> Result<String, String> {
        let mut stream = TextStream::after(self, before);
        let mut text = String::new();
        for token in tokens {
            text += &stream.push(*token)?;
        }
        Ok(text + &stream.finish()?)
    }
}
