//! The parts of a batch: the lengths of its columns, and their buffers as streams.

use std::ops::Range;

use super::buffer::{Buffer, Codec};
use super::flat::Table;
use super::schema::Offsets;
use crate::error::Problem;
use crate::growth::Growth;

/// The most bytes of a string, and of a buffer of views.
pub const MOST_BYTES: u64 = 256 << 20;

/// The lengths and the buffers of the columns of a batch.
pub struct Parts<B> {
    pub file: B,
    pub codec: Codec,
    body: usize,
    end: usize,
    /// Rows of each column, and how many of them are null.
    nodes: Vec<(usize, usize)>,
    buffers: Vec<(usize, usize)>,
    /// For each column of views its number of buffers of bytes.
    views: Vec<usize>,
}

/// The first node, buffer and column of views that belong to the next column.
#[derive(Clone, Copy, Debug)]
pub struct Cursor {
    pub node: usize,
    pub buffer: usize,
    pub view: usize,
}

impl<B: AsRef<[u8]> + Clone> Parts<B> {
    /// The parts of the batch that `record` describes, whose buffers begin at byte `body` of `file` and end before
    /// `end`.
    pub fn new(file: &B, record: &Table, (body, end): (usize, usize)) -> Result<Parts<B>, Problem> {
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
        let (nodes, buffers, views) = (record.pairs(1)?, record.pairs(2)?, record.lengths(4)?);
        Ok(Parts { file: file.clone(), codec, body, end, nodes, buffers, views })
    }

    /// Rows of the column `index`, and how many of them are null.
    pub fn node(&self, index: usize) -> Result<(u64, u64), Problem> {
        self.nodes.get(index).map(|(rows, nulls)| (*rows as u64, *nulls as u64)).ok_or_else(lacking)
    }

    /// Buffers of bytes of the column of views `index`.
    pub fn view_buffers(&self, index: usize) -> usize {
        self.views.get(index).copied().unwrap_or_default()
    }

    /// The place of the buffer after `buffers` and those of the first `views` columns of views.
    pub fn first_buffer(&self, buffers: usize, views: usize) -> usize {
        let count = self.views.iter().take(views).fold(buffers, |sum, count| sum.saturating_add(*count));
        // No batch has half of all places, and sums of it and small numbers do not overflow.
        count.min(usize::MAX / 2)
    }

    /// Where buffer `index` is in the file.
    pub fn range(&self, index: usize) -> Result<Range<usize>, Problem> {
        let (offset, bytes) = *self.buffers.get(index).ok_or_else(lacking)?;
        let start = self.body.checked_add(offset).filter(|start| *start <= self.end);
        let after = start.and_then(|start| start.checked_add(bytes)).filter(|after| *after <= self.end);
        let (Some(start), Some(after)) = (start, after) else {
            return Err(Problem::damaged(format!("a buffer of {bytes} bytes at {offset} is outside of its batch")));
        };
        Ok(start..after)
    }

    /// Buffer `index`.
    pub fn buffer(&self, index: usize) -> Result<Buffer<B>, Problem> {
        Buffer::new(self.file.clone(), self.range(index)?, self.codec)
    }

    /// The bits in buffer `index` of a column in which `nulls` rows are null.
    pub fn validity(&self, index: usize, nulls: u64) -> Result<Validity<B>, Problem> {
        let is_there = nulls > 0 && !self.range(index)?.is_empty();
        Ok(Validity { bits: is_there.then(|| self.buffer(index)).transpose()?, byte: 0, left: 0 })
    }

    /// The bits in buffer `index`, which is there.
    pub fn bits(&self, index: usize) -> Result<Validity<B>, Problem> {
        Ok(Validity { bits: Some(self.buffer(index)?), byte: 0, left: 0 })
    }
}

/// Bits that say which rows have a value; without them all have.
pub struct Validity<B: AsRef<[u8]>> {
    bits: Option<Buffer<B>>,
    byte: u8,
    left: u32,
}

impl<B: AsRef<[u8]>> Validity<B> {
    /// Rows that all have a value, or have none by their type.
    pub fn all() -> Validity<B> {
        Validity { bits: None, byte: 0, left: 0 }
    }

    /// Whether the next row has a value.
    pub fn next(&mut self) -> Result<bool, Problem> {
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

/// Values of variable length, each from one offset to the next.
pub struct Row<B: AsRef<[u8]>> {
    offsets: Buffer<B>,
    width: usize,
    /// The offset that was read last, and how far the values were read.
    offset: u64,
    at: u64,
    pub values: Buffer<B>,
}

impl<B: AsRef<[u8]> + Clone> Row<B> {
    /// The `rows` rows whose offsets are in buffer `first` of `parts`, and their values in buffer `values`.
    pub fn new(
        parts: &Parts<B>,
        (first, values): (usize, usize),
        offsets: Offsets,
        rows: u64,
        growth: &mut Growth,
    ) -> Result<Row<B>, Problem> {
        let values = parts.buffer(values)?;
        let mut row = Row { offsets: parts.buffer(first)?, width: offsets.bytes(), offset: 0, at: 0, values };
        // Without rows even the first offset may be left out.
        if rows > 0 {
            row.offset = row.offsets.number(row.width)?;
            // Values before it are skipped.
            growth.add(row.offset)?;
        }
        Ok(row)
    }

    /// Skips the next row, whose values are bytes.
    pub fn pass(&mut self, growth: &mut Growth) -> Result<(), Problem> {
        let end = self.offsets.number(self.width)?;
        let bytes = end.checked_sub(self.offset).filter(|_| end <= i64::MAX as u64);
        let bytes = bytes.ok_or_else(|| Problem::damaged(format!("an offset is {end}, after {}", self.offset)))?;
        self.offset = end;
        // They are skipped with the next row that is read.
        growth.add(bytes)
    }

    /// The number of values of the next row, each of `width` bytes, which the caller reads.
    pub fn next(&mut self, width: u64) -> Result<u64, Problem> {
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

/// Room for `bytes`.
pub fn room(bytes: u64, growth: &mut Growth) -> Result<Vec<u8>, Problem> {
    if bytes > MOST_BYTES {
        return Err(Problem::TooLarge { what: "a string or its buffer", bytes, limit_bytes: MOST_BYTES });
    }
    growth.add(bytes)?;
    Ok(vec![0; bytes as usize])
}

/// The problem of a batch without a part of the column.
pub fn lacking() -> Problem {
    Problem::damaged("a batch lacks a part of the column")
}
