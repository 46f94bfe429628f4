//! Strings in any of several buffers of a batch.

use super::buffer::{Buffer, Codec};
use super::parts::{Parts, lacking, room};
use crate::error::Problem;
use crate::growth::Growth;

/// Bytes of a view, and of the string that fits into one.
const VIEW_BYTES: usize = 16;
const INLINE_BYTES: usize = 12;

/// Strings in any of several buffers.
pub struct Views<B: AsRef<[u8]>> {
    views: Buffer<B>,
    file: B,
    codec: Codec,
    buffers: Vec<std::ops::Range<usize>>,
    /// The buffer that was decompressed last.
    open: Option<(usize, Vec<u8>)>,
}

impl<B: AsRef<[u8]> + Clone> Views<B> {
    /// The strings whose views are in buffer `index` of `parts`, and their bytes in those after it.
    pub fn new(parts: &Parts<B>, index: usize, count: usize) -> Result<Views<B>, Problem> {
        let buffers = (0..count).map(|buffer| parts.range((index + 1).saturating_add(buffer)));
        let buffers = buffers.collect::<Result<_, Problem>>()?;
        Ok(Views { views: parts.buffer(index)?, file: parts.file.clone(), codec: parts.codec, buffers, open: None })
    }

    /// Skips `count` strings.
    pub fn skip(&mut self, count: u64) -> Result<(), Problem> {
        self.views.skip(count.saturating_mul(VIEW_BYTES as u64))
    }

    /// The next string.
    pub fn next(&mut self, growth: &mut Growth) -> Result<Vec<u8>, Problem> {
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
