//! Rows of one batch, from streams of its buffers.

use super::buffer::{Buffer, Codec};
use super::flat::Table;
use super::schema::{Column, Content, Integers, Offsets};
use crate::error::Problem;
use crate::growth::Growth;
use crate::kinds::Cell;

/// The most bytes of a string, and of a buffer of views.
pub const MOST_BYTES: u64 = 256 << 20;
/// Bytes of a view, and of the string that fits into one.
const VIEW_BYTES: usize = 16;
const INLINE_BYTES: usize = 12;

/// Bits that say which rows have a value; without them all have.
struct Validity<B: AsRef<[u8]>> {
    bits: Option<Buffer<B>>,
    byte: u8,
    left: u32,
}

impl<B: AsRef<[u8]>> Validity<B> {
    fn next(&mut self) -> Result<bool, Problem> {
        let Some(bits) = &mut self.bits else { return Ok(true) };
        if self.left == 0 {
            self.byte = bits.number(1)? as u8;
            self.left = 8;
        }
        let bit = self.byte & 1 == 1;
        self.byte >>= 1;
        self.left -= 1;
        Ok(bit)
    }
}

/// Values of the rows.
enum Values<B: AsRef<[u8]>> {
    Strings(Row<B>),
    Views(Views<B>),
    Lists { row: Row<B>, elements: Validity<B>, integers: Integers },
}

/// Values of variable length, each from one offset to the next.
struct Row<B: AsRef<[u8]>> {
    offsets: Buffer<B>,
    width: usize,
    /// The offset that was read last, and how far the values were read.
    offset: u64,
    at: u64,
    values: Buffer<B>,
}

impl<B: AsRef<[u8]>> Row<B> {
    /// The number of values of the next row, after those that are skipped by `skip`.
    fn next(&mut self, width: u64) -> Result<u64, Problem> {
        let start = self.offset;
        let end = self.offsets.number(self.width)?;
        if end < start || end > i64::MAX as u64 {
            return Err(Problem::damaged(format!("an offset is {end}, after {start}")));
        }
        self.offset = end;
        if self.at < start {
            self.values.skip((start - self.at).saturating_mul(width))?;
        }
        self.at = end;
        Ok(end - start)
    }
}

/// Strings in any of several buffers.
struct Views<B: AsRef<[u8]>> {
    views: Buffer<B>,
    file: B,
    codec: Codec,
    buffers: Vec<std::ops::Range<usize>>,
    /// The buffer that was decompressed last.
    open: Option<(usize, Vec<u8>)>,
}

/// A batch with the rows that are left.
pub struct Batch<B: AsRef<[u8]>> {
    pub left: u64,
    validity: Validity<B>,
    values: Values<B>,
}

impl<B: AsRef<[u8]> + Clone> Batch<B> {
    /// The batch that `record` describes, whose buffers begin at byte `body` of `file` and end before `end`.
    pub fn new(
        file: &B,
        record: &Table,
        column: &Column,
        (body, end): (usize, usize),
        growth: &mut Growth,
    ) -> Result<Batch<B>, Problem> {
        let codec = match record.table(3)? {
            None => Codec::None,
            Some(compression) => match compression.number(0, 1)? {
                0 => Codec::Lz4,
                1 => Codec::Zstd,
                other => {
                    let what = format!("a batch compressed by codec {other}");
                    return Err(Problem::Unsupported { what, remedy: "write it with zstd or lz4" });
                }
            },
        };
        let left = record.length(0)? as u64;
        let nodes = record.pairs(1)?;
        let (length, nulls) = *nodes.get(column.first_node).ok_or_else(lacking)?;
        if length as u64 != left {
            return Err(Problem::damaged(format!("a column has {length} rows in a batch of {left}")));
        }
        let places = record.pairs(2)?;
        let views = record.lengths(4)?;
        let before: usize = views.iter().take(column.views_before).fold(0, |sum, count| sum.saturating_add(*count));
        let first = column.first_buffer.saturating_add(before);
        let range = |index: usize| -> Result<std::ops::Range<usize>, Problem> {
            let (offset, bytes) = *first.checked_add(index).and_then(|at| places.get(at)).ok_or_else(lacking)?;
            let start = body.checked_add(offset).filter(|start| *start <= end);
            let after = start.and_then(|start| start.checked_add(bytes)).filter(|after| *after <= end);
            let (Some(start), Some(after)) = (start, after) else {
                return Err(Problem::damaged(format!("a buffer of {bytes} bytes at {offset} is outside of its batch")));
            };
            Ok(start..after)
        };
        let buffer = |index: usize| Buffer::new(file.clone(), range(index)?, codec);
        let validity = |index: usize, nulls: usize| -> Result<Validity<B>, Problem> {
            let is_there = nulls > 0 && !range(index)?.is_empty();
            Ok(Validity { bits: is_there.then(|| buffer(index)).transpose()?, byte: 0, left: 0 })
        };
        let mut row = |offsets: Offsets, values: Buffer<B>| -> Result<Row<B>, Problem> {
            let mut row = Row { offsets: buffer(1)?, width: offsets.bytes(), offset: 0, at: 0, values };
            // Without rows even the first offset may be left out.
            if left > 0 {
                row.offset = row.offsets.number(row.width)?;
                // Values before it are skipped.
                growth.add(row.offset)?;
            }
            Ok(row)
        };
        let values = match column.content {
            Content::Strings(offsets) => Values::Strings(row(offsets, buffer(2)?)?),
            Content::Views => {
                let count = views.get(column.views_before).copied().unwrap_or_default();
                let buffers = (0..count).map(|index| range(2 + index)).collect::<Result<_, Problem>>()?;
                Values::Views(Views { views: buffer(1)?, file: file.clone(), codec, buffers, open: None })
            }
            Content::Lists(offsets, integers) => {
                let (_, nulls) = *nodes.get(column.first_node + 1).ok_or_else(lacking)?;
                Values::Lists { row: row(offsets, buffer(3)?)?, elements: validity(2, nulls)?, integers }
            }
        };
        Ok(Batch { left, validity: validity(0, nulls)?, values })
    }

    /// The next row.
    pub fn next(&mut self, growth: &mut Growth) -> Result<Cell, Problem> {
        self.left -= 1;
        growth.add(1)?;
        let is_there = self.validity.next()?;
        match &mut self.values {
            Values::Strings(row) => {
                let mut bytes = room(row.next(1)?, growth)?;
                row.values.fill(&mut bytes)?;
                text(is_there, bytes)
            }
            Values::Views(views) => {
                let bytes = views.next(growth)?;
                text(is_there, bytes)
            }
            Values::Lists { row, elements, integers } => {
                let count = row.next(integers.bytes as u64)?;
                let mut tokens = Vec::new();
                for _ in 0..count {
                    growth.add(4)?;
                    let token = token(row.values.number(integers.bytes)?, *integers)?;
                    if !elements.next()? {
                        let what = "null in a list of tokens".into();
                        return Err(Problem::Unsupported { what, remedy: "write the list without it" });
                    }
                    tokens.push(token);
                }
                Ok(Cell::Tokens(if is_there { tokens } else { vec![] }))
            }
        }
    }
}

impl<B: AsRef<[u8]> + Clone> Views<B> {
    fn next(&mut self, growth: &mut Growth) -> Result<Vec<u8>, Problem> {
        let mut view = [0; VIEW_BYTES];
        self.views.fill(&mut view)?;
        let word = |at: usize| u32::from_le_bytes([view[at], view[at + 1], view[at + 2], view[at + 3]]) as usize;
        let length = word(0);
        growth.add(length as u64)?;
        if length <= INLINE_BYTES {
            return Ok(view[4..4 + length].to_vec());
        }
        let (index, offset) = (word(8), word(12));
        if self.open.as_ref().is_none_or(|(open, _)| *open != index) {
            self.open = Some((index, self.content(index, growth)?));
        }
        let range = self.buffers.get(index).cloned().ok_or_else(lacking)?;
        let content = match (self.codec, &self.open) {
            (Codec::Lz4 | Codec::Zstd, Some((_, content))) => content.as_slice(),
            (Codec::None, _) | (_, None) => &self.file.as_ref()[range],
        };
        let bytes = offset.checked_add(length).and_then(|end| content.get(offset..end));
        bytes.map(<[u8]>::to_vec).ok_or_else(|| Problem::damaged("a string is outside of its buffer"))
    }

    /// The content of a compressed buffer; nothing for one that is not compressed.
    fn content(&self, index: usize, growth: &mut Growth) -> Result<Vec<u8>, Problem> {
        if self.codec == Codec::None {
            return Ok(vec![]);
        }
        let range = self.buffers.get(index).cloned().ok_or_else(lacking)?;
        let file = self.file.as_ref();
        let size = file.get(range.start..range.start + 8.min(range.len())).unwrap_or_default();
        let mut word = [0; 8];
        word[..size.len()].copy_from_slice(size);
        let bytes = match i64::from_le_bytes(word) {
            -1 => (range.len() - size.len()) as u64,
            bytes => u64::try_from(bytes).unwrap_or(u64::MAX),
        };
        let mut content = room(bytes, growth)?;
        Buffer::new(file, range, self.codec)?.fill(&mut content)?;
        Ok(content)
    }
}

/// Room for `bytes`.
fn room(bytes: u64, growth: &mut Growth) -> Result<Vec<u8>, Problem> {
    if bytes > MOST_BYTES {
        return Err(Problem::TooLarge { what: "a string or its buffer", bytes, limit_bytes: MOST_BYTES });
    }
    growth.add(bytes)?;
    Ok(vec![0; bytes as usize])
}

fn text(is_there: bool, bytes: Vec<u8>) -> Result<Cell, Problem> {
    if !is_there {
        return Ok(Cell::Text(String::new()));
    }
    let text = String::from_utf8(bytes);
    text.map(Cell::Text).map_err(|error| {
        Problem::damaged(format!("a string is not UTF-8 at its byte {}", error.utf8_error().valid_up_to()))
    })
}

fn token(word: u64, integers: Integers) -> Result<u32, Problem> {
    let unused = 64 - 8 * integers.bytes as u32;
    // Shifts of a signed number give the sign back.
    let number = if integers.is_signed { i128::from((word << unused) as i64 >> unused) } else { i128::from(word) };
    u32::try_from(number).map_err(|_| Problem::NotToken(number))
}

fn lacking() -> Problem {
    Problem::damaged("a batch lacks a part of the column")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_not_tokens_are_told_as_they_were_written() {
        let said =
            |word, bytes, is_signed| token(word, Integers { bytes, is_signed }).map_err(|problem| problem.to_string());
        assert_eq!(said(7, 4, true), Ok(7));
        assert_eq!(said(0xffff_ffff, 4, false), Ok(u32::MAX));
        let rule = "is not a token; tokens are whole numbers from 0 to 4294967295: write the file again with others";
        assert_eq!(said(0xffff_ffff, 4, true), Err(format!("-1 {rule}")));
        assert_eq!(said(u64::MAX, 8, true), Err(format!("-1 {rule}")));
        assert_eq!(said(1 << 32, 8, true), Err(format!("4294967296 {rule}")));
        assert_eq!(said(u64::MAX, 8, false), Err(format!("18446744073709551615 {rule}")));
    }
}
