//! Buffers of a batch as streams, compressed or not.

use std::io::{ErrorKind, Read};
use std::ops::Range;

use lz4_flex::frame::FrameDecoder;

use crate::compressed::{Compression, Decompressed};
use crate::error::Problem;
use crate::part::Part;

/// How the buffers of a batch are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    None,
    Lz4,
    Zstd,
}

/// The bytes of a buffer, one after the other.
pub enum Buffer<B: AsRef<[u8]>> {
    Plain(Part<B>),
    Lz4(Box<FrameDecoder<Part<B>>>),
    Zstd(Box<Decompressed<Part<B>>>),
}

impl<B: AsRef<[u8]>> Buffer<B> {
    /// The buffer in `range` of `bytes`.
    pub fn new(bytes: B, range: Range<usize>, codec: Codec) -> Result<Buffer<B>, Problem> {
        let mut part = Part::new(bytes, range);
        if codec == Codec::None || part.rest().is_empty() {
            return Ok(Buffer::Plain(part));
        }
        let mut size = [0; 8];
        part.read_exact(&mut size).map_err(|_| early())?;
        // Where it would not become smaller, a buffer stays as it is.
        if i64::from_le_bytes(size) == -1 {
            return Ok(Buffer::Plain(part));
        }
        Ok(match codec {
            Codec::None => Buffer::Plain(part),
            Codec::Lz4 => Buffer::Lz4(Box::new(FrameDecoder::new(part))),
            // Rows are counted where they are read.
            Codec::Zstd => Buffer::Zstd(Box::new(Decompressed::new(part, Compression::Zstd, u64::MAX))),
        })
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Problem> {
        match self {
            Buffer::Plain(part) => part.read_exact(bytes).map_err(|_| early()),
            Buffer::Lz4(decoder) => decoder.read_exact(bytes).map_err(|error| {
                let is_early = error.kind() == ErrorKind::UnexpectedEof;
                if is_early { early() } else { Problem::damaged(error.to_string()) }
            }),
            Buffer::Zstd(decoder) => match decoder.fill(bytes).map_err(|error| error.problem)? {
                count if count == bytes.len() => Ok(()),
                _ => Err(early()),
            },
        }
    }

    /// The next number of `width` bytes.
    pub fn number(&mut self, width: usize) -> Result<u64, Problem> {
        let mut word = [0; 8];
        self.fill(&mut word[..width])?;
        Ok(u64::from_le_bytes(word))
    }

    /// Skips `count` bytes.
    pub fn skip(&mut self, count: u64) -> Result<(), Problem> {
        let mut block = [0; 4096];
        let mut left = count;
        while left > 0 {
            let some = left.min(block.len() as u64);
            self.fill(&mut block[..some as usize])?;
            left -= some;
        }
        Ok(())
    }
}

fn early() -> Problem {
    Problem::damaged("a buffer ends too early")
}
