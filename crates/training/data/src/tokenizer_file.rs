//! Checks of a `tokenizer.json` before the library reads it: sizes that the library would follow without a limit.
//! Nothing is kept of the file, whatever its size is. Of two values for one key the library might take the other one,
//! so there may not be two.

mod entry;
mod growth;
mod steps;

use std::fmt;

use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};

use entry::{Entry, Longest};
use growth::growth;
use steps::Steps;

/// Longest token. The library goes over the tokens of a Unigram model by one call within another for each byte, and has
/// no stack for more than some ten thousand.
const MAX_TOKEN_BYTES: usize = 4096;
/// Largest number of a token: tables of all numbers below are made.
const MAX_TOKEN: u64 = (1 << 24) - 1;
/// Most tokens, and most merges of them.
const MAX_TOKENS: usize = 1 << 22;
/// Longest word of a WordPiece model, which compares each word with itself.
const MAX_WORD_CHARS: u64 = 1000;
/// Bytes that a byte of text may become at most.
const MAX_GROWTH: f64 = 1024.0;
/// Bytes that a byte of text becomes in tokenizers of which no text needs to be looked at.
const USUAL_GROWTH: f64 = 64.0;

/// How much text may grow before it is cut into tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    /// Not more than the published tokenizers let it.
    Usual,
    /// So much that each text is looked at.
    ToBeMeasured,
}

#[derive(Deserialize)]
struct TokenizerFile {
    #[serde(default)]
    model: Option<Model>,
    #[serde(default)]
    normalizer: Steps,
    #[serde(default)]
    pre_tokenizer: Steps,
    #[serde(default)]
    decoder: Steps,
    #[serde(default)]
    added_tokens: Option<Tokens>,
}

#[derive(Deserialize)]
struct Model {
    #[serde(default)]
    vocab: Option<Tokens>,
    #[serde(default)]
    merges: Option<Tokens>,
    #[serde(default)]
    max_input_chars_per_word: Option<u64>,
}

/// Whether the library can take a tokenizer. Anything but JSON is refused, too: the library would build a model of its
/// beginning.
///
/// # Errors
/// The key of what is too large, with its limit.
pub(crate) fn check(description: &str) -> Result<Growth, String> {
    let file: TokenizerFile = serde_json::from_str(description).map_err(|error| error.to_string())?;
    if let Some(chars) =
        file.model.as_ref().and_then(|model| model.max_input_chars_per_word).filter(|chars| *chars > MAX_WORD_CHARS)
    {
        return Err(format!("model.max_input_chars_per_word = {chars} must be at most {MAX_WORD_CHARS}"));
    }
    for (key, tokens) in [
        ("model.vocab", file.model.as_ref().and_then(|model| model.vocab.as_ref())),
        ("model.merges", file.model.as_ref().and_then(|model| model.merges.as_ref())),
        ("added_tokens", file.added_tokens.as_ref()),
    ] {
        let Some(Tokens { number, longest_bytes, largest }) = tokens else { continue };
        if *largest > MAX_TOKEN {
            return Err(format!("{key} has the token {largest}; use numbers up to {MAX_TOKEN}"));
        }
        if *longest_bytes > MAX_TOKEN_BYTES {
            return Err(format!("{key} has a token of {longest_bytes} bytes; use at most {MAX_TOKEN_BYTES}"));
        }
        if *number > MAX_TOKENS {
            return Err(format!("{key} has {number} entries; use at most {MAX_TOKENS}"));
        }
    }
    let mut usual = Growth::Usual;
    for (key, steps) in
        [("normalizer", &file.normalizer), ("pre_tokenizer", &file.pre_tokenizer), ("decoder", &file.decoder)]
    {
        let times = growth(&steps.list);
        if times > MAX_GROWTH {
            return Err(format!("{key} may make {times:.0} bytes of one; use steps that make at most {MAX_GROWTH:.0}"));
        }
        if times > USUAL_GROWTH {
            usual = Growth::ToBeMeasured;
        }
    }
    Ok(usual)
}

/// Number and longest string of entries: of `{"token": number}`, `["token", ...]`, `[["token", score], ...]` or
/// `[{"content": "token"}, ...]`.
#[derive(Default)]
struct Tokens {
    number: usize,
    longest_bytes: usize,
    /// The largest number of a token.
    largest: u64,
}

impl Tokens {
    fn add(&mut self, bytes: usize) {
        self.number += 1;
        self.longest_bytes = self.longest_bytes.max(bytes);
    }
}

impl<'de> Deserialize<'de> for Tokens {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Tokens, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Tokens;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list or a table of tokens")
            }

            fn visit_unit<E: Error>(self) -> Result<Tokens, E> {
                Ok(Tokens::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tokens, A::Error> {
                let mut tokens = Tokens::default();
                while let Some(Longest(bytes)) = map.next_key()? {
                    // The library refuses anything but a number.
                    tokens.largest = tokens.largest.max(map.next_value::<Entry>()?.number);
                    tokens.add(bytes);
                }
                Ok(tokens)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Tokens, A::Error> {
                let mut tokens = Tokens::default();
                while let Some(Entry { longest_bytes, number }) = list.next_element()? {
                    tokens.largest = tokens.largest.max(number);
                    tokens.add(longest_bytes);
                }
                Ok(tokens)
            }
        }
        deserializer.deserialize_any(Entries)
    }
}

/// The error of a misplaced step.
fn misplaced<E: de::Error>(what: &str) -> E {
    E::custom(what)
}

#[cfg(test)]
mod tests;
