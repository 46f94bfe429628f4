//! Values of a page, one after the other.

use std::ops::Range;

use super::columns::Physical;
use super::deltas::Deltas;
use super::runs::{Runs, bits};
use crate::error::Problem;

const PLAIN: i64 = 0;
const PLAIN_DICTIONARY: i64 = 2;
const RLE: i64 = 3;
const DELTA_BINARY_PACKED: i64 = 5;
const DELTA_LENGTH_BYTE_ARRAY: i64 = 6;
const DELTA_BYTE_ARRAY: i64 = 7;
const RLE_DICTIONARY: i64 = 8;

/// The values that a chunk's pages refer to by their places.
#[derive(Debug)]
pub struct Dictionary {
    bytes: Vec<u8>,
    /// Where each value is.
    places: Vec<Range<u32>>,
}

impl Dictionary {
    /// The `count` values of a page.
    pub fn read(bytes: Vec<u8>, count: u64, encoding: i64, physical: Physical) -> Result<Dictionary, Problem> {
        if encoding != PLAIN && encoding != PLAIN_DICTIONARY {
            return Err(unknown(encoding));
        }
        let mut places = Vec::new();
        let mut at = 0;
        for _ in 0..count {
            let range = plain(&bytes, &mut at, physical)?;
            // A page is shorter than 2^32 bytes.
            places.push(range.start as u32..range.end as u32);
        }
        Ok(Dictionary { bytes, places })
    }

    fn get(&self, place: u32) -> Result<&[u8], Problem> {
        let missing = || Problem::damaged(format!("value {place} of a dictionary that has {}", self.places.len()));
        let range = self.places.get(place as usize).ok_or_else(missing)?;
        Ok(&self.bytes[range.start as usize..range.end as usize])
    }
}

/// The values of a page that are left.
#[derive(Debug)]
pub enum Values {
    /// From this byte on.
    Plain { at: usize, physical: Physical },
    /// Truth values of one bit each, from this bit on.
    Bits { at: usize },
    /// Truth values as runs.
    BitRuns(Runs),
    /// Places in the dictionary.
    Places(Runs),
    /// Whole numbers.
    Deltas(Deltas),
    /// Lengths of strings, which are after them from this byte on.
    Lengths { lengths: Deltas, at: usize },
    /// For each string the bytes that it shares with the one before, and those that it adds.
    Prefixes { prefixes: Deltas, lengths: Deltas, at: usize, last: Vec<u8> },
}

impl Values {
    /// The values of `page` from byte `at` on.
    pub fn begin(page: &[u8], at: usize, encoding: i64, physical: Physical) -> Result<Values, Problem> {
        let rest = at..page.len();
        match (encoding, physical) {
            (PLAIN, Physical::Boolean) => Ok(Values::Bits { at: at * 8 }),
            (RLE, Physical::Boolean) => {
                let mut start = at;
                // A page without values may end here.
                if rest.is_empty() {
                    return Ok(Values::Bits { at: at * 8 });
                }
                let range = plain(page, &mut start, Physical::Bytes)?;
                Runs::new(range, 1).map(Values::BitRuns)
            }
            (PLAIN, physical) => Ok(Values::Plain { at, physical }),
            (PLAIN_DICTIONARY | RLE_DICTIONARY, _) => {
                // A page without values may end here.
                let Some(width) = page.get(at) else { return Ok(Values::Plain { at, physical }) };
                Runs::new(at + 1..page.len(), (*width).into()).map(Values::Places)
            }
            (DELTA_BINARY_PACKED, Physical::Int32 | Physical::Int64) => Deltas::new(page, rest).map(Values::Deltas),
            (DELTA_LENGTH_BYTE_ARRAY, Physical::Bytes) => {
                let lengths = Deltas::new(page, rest)?;
                let at = lengths.end(page)?;
                Ok(Values::Lengths { lengths, at })
            }
            (DELTA_BYTE_ARRAY, Physical::Bytes) => {
                let prefixes = Deltas::new(page, rest)?;
                let lengths = Deltas::new(page, prefixes.end(page)?..page.len())?;
                let at = lengths.end(page)?;
                Ok(Values::Prefixes { prefixes, lengths, at, last: Vec::new() })
            }
            // Values that are not read have any encoding.
            (_, Physical::Fixed(_)) => Ok(Values::Plain { at, physical }),
            (
                encoding,
                Physical::Bytes
                | Physical::Int32
                | Physical::Int64
                | Physical::Boolean
                | Physical::Float
                | Physical::Double,
            ) => Err(unknown(encoding)),
        }
    }

    /// The bytes of the next string.
    pub fn next_bytes<'a>(
        &'a mut self,
        page: &'a [u8],
        dictionary: Option<&'a Dictionary>,
    ) -> Result<&'a [u8], Problem> {
        match self {
            Values::Plain { at, physical } => Ok(&page[plain(page, at, *physical)?]),
            Values::Places(places) => present(dictionary)?.get(places.next(page)?),
            Values::Lengths { lengths, at } => {
                let range = after(page, *at, lengths.next(page)?)?;
                *at = range.end;
                Ok(&page[range])
            }
            Values::Prefixes { prefixes, lengths, at, last } => {
                let prefix = usize::try_from(prefixes.next(page)?).ok().filter(|prefix| *prefix <= last.len());
                let prefix = prefix.ok_or_else(|| Problem::damaged("a string shares more than the one before has"))?;
                let range = after(page, *at, lengths.next(page)?)?;
                *at = range.end;
                last.truncate(prefix);
                last.extend_from_slice(&page[range]);
                Ok(last)
            }
            Values::Deltas(_) => Err(unknown(DELTA_BINARY_PACKED)),
            Values::Bits { .. } => Err(unknown(PLAIN)),
            Values::BitRuns(_) => Err(unknown(RLE)),
        }
    }

    /// The next whole number.
    pub fn next_integer(&mut self, page: &[u8], dictionary: Option<&Dictionary>) -> Result<i64, Problem> {
        match self {
            Values::Plain { at, physical } => Ok(integer(&page[plain(page, at, *physical)?])),
            Values::Places(places) => present(dictionary)?.get(places.next(page)?).map(integer),
            Values::Deltas(deltas) => deltas.next(page),
            Values::BitRuns(runs) => runs.next(page).map(i64::from),
            Values::Bits { at } => {
                if *at / 8 >= page.len() {
                    return Err(Problem::damaged("truth values of a page end too early"));
                }
                *at += 1;
                Ok(bits(page, *at - 1, 1) as i64)
            }
            Values::Lengths { .. } => Err(unknown(DELTA_LENGTH_BYTE_ARRAY)),
            Values::Prefixes { .. } => Err(unknown(DELTA_BYTE_ARRAY)),
        }
    }
}

fn present(dictionary: Option<&Dictionary>) -> Result<&Dictionary, Problem> {
    dictionary.ok_or_else(|| Problem::damaged("a page refers to a dictionary that is missing"))
}

/// The place of the plain value at byte `at`, which moves after it.
fn plain(page: &[u8], at: &mut usize, physical: Physical) -> Result<Range<usize>, Problem> {
    let length = match physical {
        Physical::Boolean => 1,
        Physical::Int32 | Physical::Float => 4,
        Physical::Int64 | Physical::Double => 8,
        Physical::Fixed(bytes) => bytes.into(),
        Physical::Bytes => {
            let word = after(page, *at, 4)?;
            *at = word.end;
            integer(&page[word])
        }
    };
    let range = after(page, *at, length)?;
    *at = range.end;
    Ok(range)
}

/// The `length` bytes from byte `at` on.
fn after(page: &[u8], at: usize, length: i64) -> Result<Range<usize>, Problem> {
    let end = usize::try_from(length).ok().and_then(|length| at.checked_add(length)).filter(|end| *end <= page.len());
    let end = end.ok_or_else(|| Problem::damaged(format!("a value has {length} bytes: more than its page")))?;
    Ok(at..end)
}

/// A number of 4 or 8 bytes.
fn integer(bytes: &[u8]) -> i64 {
    match bytes {
        [a, b, c, d] => i32::from_le_bytes([*a, *b, *c, *d]).into(),
        _ => {
            let mut word = [0; 8];
            let count = bytes.len().min(8);
            word[..count].copy_from_slice(&bytes[..count]);
            i64::from_le_bytes(word)
        }
    }
}

fn unknown(encoding: i64) -> Problem {
    let what = format!("a column in encoding {encoding}");
    Problem::Unsupported { what, remedy: "write it plain, with a dictionary or with deltas" }
}
