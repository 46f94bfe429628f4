//! One entry of a list or a table of tokens, of whatever form: nothing is kept but sizes.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// An entry: `number`, `"token"`, `["token", score]`, `["one", "other"]` or `{"id": number, "content": "token", ...}`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Entry {
    /// Bytes of the longest string.
    pub(super) longest_bytes: usize,
    /// The number of the token; 0 where it has none.
    pub(super) number: u64,
}

/// Bytes of a string.
pub(super) struct Longest(pub(super) usize);

impl<'de> Deserialize<'de> for Longest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Longest, D::Error> {
        Entry::deserialize(deserializer).map(|entry| Longest(entry.longest_bytes))
    }
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Entry, D::Error> {
        deserializer.deserialize_any(Form)
    }
}

struct Form;

impl<'de> Visitor<'de> for Form {
    type Value = Entry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a token")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Entry, E> {
        Ok(Entry { longest_bytes: text.len(), number: 0 })
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Entry, E> {
        Ok(Entry { longest_bytes: 0, number })
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Entry, E> {
        Ok(Entry::default())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Entry, E> {
        Ok(Entry::default())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Entry, E> {
        Ok(Entry::default())
    }

    fn visit_unit<E: Error>(self) -> Result<Entry, E> {
        Ok(Entry::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Entry, A::Error> {
        let mut longest_bytes = 0;
        while let Some(Longest(bytes)) = list.next_element()? {
            longest_bytes = longest_bytes.max(bytes);
        }
        // Numbers in a list are scores.
        Ok(Entry { longest_bytes, number: 0 })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entry, A::Error> {
        let mut entry = Entry::default();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "id" => entry.number = map.next_value::<Entry>()?.number,
                "content" => entry.longest_bytes = map.next_value::<Longest>()?.0,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(entry)
    }
}
