//! A range of a file's bytes as a stream that owns its file.

use std::io::{self, Read};
use std::ops::Range;

/// The bytes of a range of `bytes`, read one after the other. A clone of `bytes` shares them.
#[derive(Clone, Debug)]
pub struct Part<B> {
    bytes: B,
    left: Range<usize>,
}

impl<B: AsRef<[u8]>> Part<B> {
    /// The bytes of `range`; they end with `bytes` at the latest.
    pub fn new(bytes: B, range: Range<usize>) -> Part<B> {
        let end = range.end.min(bytes.as_ref().len());
        let left = range.start.min(end)..end;
        Part { bytes, left }
    }

    /// The bytes that are left.
    pub fn rest(&self) -> &[u8] {
        &self.bytes.as_ref()[self.left.clone()]
    }

    /// Where the next byte is in the file.
    pub fn at(&self) -> usize {
        self.left.start
    }

    /// Moves by `count` bytes, at most to the end.
    pub fn skip(&mut self, count: usize) {
        self.left.start += count.min(self.left.len());
    }
}

impl<B: AsRef<[u8]>> Read for Part<B> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = buffer.len().min(self.left.len());
        buffer[..count].copy_from_slice(&self.rest()[..count]);
        self.skip(count);
        Ok(count)
    }
}
