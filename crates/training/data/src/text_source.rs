//! The bytes of a text as they come, decompressed.

use std::io::Read;
use std::path::Path;

use formats::Decompressed;

use crate::error::DataError;
use crate::json_lines;
use crate::text_parts::{AFTER_BYTES, PART_BYTES, first_cut};

/// The most bytes of a line of JSON.
pub(crate) const LINE_BYTES: usize = 64 << 20;
/// Bytes that are read at once.
const BLOCK_BYTES: usize = 1 << 18;

/// Where bytes come from.
pub(crate) enum Source {
    Plain(Box<dyn Read + Send>),
    Packed(Box<Decompressed<Box<dyn Read + Send>>>),
}

/// Bytes of text as they come, decompressed.
pub(crate) struct Text {
    pub(crate) source: Source,
    /// Bytes that were read, and how many of them were used; the next one is at `offset` of the content.
    pending: Vec<u8>,
    used: usize,
    pub(crate) offset: usize,
    has_ended: bool,
}

pub(crate) fn unreadable(path: &Path) -> impl Fn(std::io::Error) -> DataError {
    move |reason| DataError::Unreadable { path: path.to_path_buf(), reason }
}

pub(crate) fn fill(stream: &mut (dyn Read + Send), buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match stream.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

impl Text {
    /// The content of `source`, of which `pending` was read before.
    pub(crate) fn new(source: Source, pending: Vec<u8>) -> Text {
        Text { source, pending, used: 0, offset: 0, has_ended: false }
    }

    /// Bytes that were read and not used.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.pending[self.used..]
    }

    /// Reads until there are `count` bytes, or all.
    pub(crate) fn reach(&mut self, path: &Path, count: usize) -> Result<(), DataError> {
        while self.rest().len() < count && !self.has_ended {
            self.read_block(path)?;
        }
        Ok(())
    }

    /// Whether there are bytes after the first `count` of the rest, which is read on if need be.
    ///
    /// # Errors
    /// Bytes that cannot be read; a record, which begins in line `line`, that is longer than any that is read.
    pub(crate) fn reaches_after(&mut self, path: &Path, line: usize, count: usize) -> Result<bool, DataError> {
        while self.rest().len() <= count {
            if self.has_ended {
                return Ok(false);
            }
            if count > LINE_BYTES {
                return Err(DataError::LongLine { path: path.to_path_buf(), line, limit_bytes: LINE_BYTES });
            }
            self.read_block(path)?;
        }
        Ok(true)
    }

    /// Uses the next `count` bytes as text.
    ///
    /// # Errors
    /// Bytes that are not UTF-8.
    pub(crate) fn take_text(&mut self, path: &Path, count: usize) -> Result<&str, DataError> {
        let offset = self.offset;
        std::str::from_utf8(self.take(count)).map_err(|error| {
            let offset = offset + error.valid_up_to();
            DataError::NotUtf8 { path: path.to_path_buf(), offset }
        })
    }

    fn read_block(&mut self, path: &Path) -> Result<(), DataError> {
        self.pending.drain(..self.used);
        self.used = 0;
        let start = self.pending.len();
        self.pending.resize(start + BLOCK_BYTES, 0);
        let block = &mut self.pending[start..];
        let count = match &mut self.source {
            Source::Plain(stream) => fill(stream.as_mut(), block).map_err(unreadable(path))?,
            Source::Packed(stream) => {
                stream.fill(block).map_err(|error| DataError::BadTable { path: path.to_path_buf(), error })?
            }
        };
        self.pending.truncate(start + count);
        self.has_ended = count < BLOCK_BYTES;
        Ok(())
    }

    /// Uses the next `count` bytes, which were read.
    pub(crate) fn take(&mut self, count: usize) -> &[u8] {
        let start = self.used;
        self.offset += count;
        self.used += count;
        &self.pending[start..self.used]
    }

    /// Bytes up to the end of the line in which byte `from` of the rest is.
    fn line_bytes(&mut self, path: &Path, line: usize, from: usize) -> Result<usize, DataError> {
        let mut searched = from;
        loop {
            if let Some(at) = self.rest()[searched..].iter().position(|byte| *byte == b'\n') {
                return Ok(searched + at + 1);
            }
            searched = self.rest().len();
            if searched > LINE_BYTES {
                return Err(DataError::LongLine { path: path.to_path_buf(), line, limit_bytes: LINE_BYTES });
            }
            if self.has_ended {
                return Ok(searched);
            }
            self.read_block(path)?;
        }
    }

    /// Whether the first line is a JSON object.
    pub(crate) fn begins_with_object(&mut self, path: &Path) -> Result<bool, DataError> {
        let blank = self.rest().iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        if self.rest().get(blank) != Some(&b'{') {
            return Ok(false);
        }
        match self.line_bytes(path, 1, blank) {
            Ok(end) => Ok(json_lines::is_object(&self.rest()[blank..end])),
            Err(DataError::LongLine { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The next line with its end; `None` after the last.
    pub(crate) fn line(&mut self, path: &Path, line: usize) -> Result<Option<&str>, DataError> {
        let count = self.line_bytes(path, line, 0)?;
        if count == 0 {
            return Ok(None);
        }
        self.take_text(path, count).map(Some)
    }

    /// The next part of the text, and whether it is the last; `None` after that.
    pub(crate) fn part(&mut self, path: &Path) -> Result<Option<(String, bool)>, DataError> {
        self.reach(path, PART_BYTES + AFTER_BYTES)?;
        if self.rest().is_empty() && self.offset > 0 {
            return Ok(None);
        }
        let valid = match std::str::from_utf8(self.rest()) {
            Ok(text) => text,
            // After a part, a character may continue in the next block.
            Err(error) if error.valid_up_to() > PART_BYTES => {
                std::str::from_utf8(&self.rest()[..error.valid_up_to()]).unwrap_or_default()
            }
            Err(error) => {
                let offset = self.offset + error.valid_up_to();
                return Err(DataError::NotUtf8 { path: path.to_path_buf(), offset });
            }
        };
        let cut = first_cut(valid);
        let part = valid[..cut.unwrap_or(valid.len())].to_string();
        self.take(part.len());
        Ok(Some((part, cut.is_none())))
    }
}
