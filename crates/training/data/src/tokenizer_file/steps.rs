//! The steps by which text is changed before and after it is cut into tokens, with what their growth follows from.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::misplaced;

/// Most steps of a file, nested or in sequence.
const MAX_STEPS: usize = 1000;
/// Longest text by which a step replaces others or which it puts in front.
const MAX_TEXT_BYTES: usize = 1024;

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// A text becomes another.
    Replace {
        /// The text; `None` for a pattern, which may be anything.
        of: Option<String>,
        /// The other.
        by: String,
    },
    /// A text is put in front of the whole.
    Prefix(String),
    /// Any character may become N bytes for each of its own.
    Any(f64),
}

/// Steps in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct Steps {
    pub(super) list: Vec<Step>,
}

impl Steps {
    fn extend<E: Error>(&mut self, more: Steps) -> Result<(), E> {
        self.list.extend(more.list);
        match self.list.len() > MAX_STEPS {
            true => Err(misplaced(&format!("more than {MAX_STEPS} steps change the text"))),
            false => Ok(()),
        }
    }
}

/// A pattern of the library: a string, `{"String": "a"}` or `{"Regex": "a"}`.
enum Pattern {
    Text(String),
    Any,
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Pattern, D::Error> {
        struct Form;
        impl<'de> Visitor<'de> for Form {
            type Value = Pattern;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a pattern")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Pattern, E> {
                Ok(Pattern::Text(text.into()))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pattern, A::Error> {
                let mut pattern = Pattern::Any;
                while let Some(form) = map.next_key::<String>()? {
                    if form == "String" {
                        pattern = Pattern::Text(map.next_value()?);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(pattern)
            }
        }
        deserializer.deserialize_any(Form)
    }
}

/// The fields of a step from which its growth follows, whatever it is called.
#[derive(Default)]
struct Fields {
    kind: String,
    inner: Option<Steps>,
    pattern: Option<Pattern>,
    content: Option<String>,
    prepend: Option<String>,
    longest_of_map: Option<usize>,
}

impl Fields {
    fn step<E: Error>(self) -> Result<Steps, E> {
        let one = |step| Steps { list: vec![step] };
        let limited = |key: &str, text: String| -> Result<String, E> {
            match text.len() > MAX_TEXT_BYTES {
                true => {
                    Err(misplaced(&format!("`{key}` of a step has {} bytes; use at most {MAX_TEXT_BYTES}", text.len())))
                }
                false => Ok(text),
            }
        };
        if let Some(inner) = self.inner {
            return Ok(inner);
        }
        if let Some(longest) = self.longest_of_map {
            return Ok(one(Step::Any(longest.max(1) as f64)));
        }
        if let Some(prepend) = self.prepend {
            return Ok(one(Step::Prefix(limited("prepend", prepend)?)));
        }
        if let (Some(pattern), Some(content)) = (self.pattern, self.content) {
            let by = limited("content", content)?;
            let of = match pattern {
                Pattern::Text(text) => Some(text).filter(|text| !text.is_empty()),
                Pattern::Any => None,
            };
            return Ok(one(Step::Replace { of, by }));
        }
        Ok(match self.kind.as_str() {
            // One byte becomes one character of two bytes, and a space may come in front.
            "ByteLevel" => one(Step::Any(3.0)),
            // Long decompositions: U+FDFA has 3 bytes, and what it stands for 33.
            "NFKC" | "NFKD" => one(Step::Any(11.0)),
            "NFC" | "NFD" => one(Step::Any(3.0)),
            "Lowercase" => one(Step::Any(1.5)),
            // Decompositions, and spaces around characters.
            "BertNormalizer" => one(Step::Any(4.0)),
            // A mark of three bytes for a space of one, and one in front.
            "Metaspace" => one(Step::Any(6.0)),
            // A byte that is not part of a character becomes a character of three.
            "ByteFallback" => one(Step::Any(3.0)),
            _ => Steps::default(),
        })
    }
}

impl<'de> Deserialize<'de> for Steps {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Steps, D::Error> {
        struct Form;
        impl<'de> Visitor<'de> for Form {
            type Value = Steps;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a step, a list of steps, or null")
            }

            fn visit_unit<E: Error>(self) -> Result<Steps, E> {
                Ok(Steps::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Steps, A::Error> {
                let mut steps = Steps::default();
                while let Some(more) = list.next_element::<Steps>()? {
                    steps.extend::<A::Error>(more)?;
                }
                Ok(steps)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Steps, A::Error> {
                let mut fields = Fields::default();
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "type" => fields.kind = map.next_value()?,
                        "normalizers" | "pretokenizers" | "decoders" => fields.inner = Some(map.next_value()?),
                        "pattern" => fields.pattern = map.next_value()?,
                        "content" => fields.content = map.next_value()?,
                        "prepend" => fields.prepend = map.next_value()?,
                        "precompiled_charsmap" => {
                            fields.longest_of_map = map.next_value::<Option<String>>()?.map(|map| longest_of_map(&map));
                        }
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                fields.step()
            }
        }
        deserializer.deserialize_any(Form)
    }
}

/// Bytes of the longest text in a map of SentencePiece, base64: the length of a search tree, the tree, and texts that
/// end in zeros.
fn longest_of_map(base64: &str) -> usize {
    let bytes = decoded(base64);
    let tree_bytes = bytes.first_chunk().map_or(0, |length| u32::from_le_bytes(*length) as usize);
    let texts = bytes.get(4 + tree_bytes..).unwrap_or_default();
    texts.split(|byte| *byte == 0).map(<[u8]>::len).max().unwrap_or(0)
}

/// The bytes that base64 stands for; other characters are skipped, because the library refuses them.
fn decoded(base64: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let (mut bytes, mut bits, mut held) = (Vec::with_capacity(base64.len() / 4 * 3), 0u32, 0);
    for digit in base64.bytes().filter_map(digit) {
        bits = bits << 6 | u32::from(digit);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    bytes
}
