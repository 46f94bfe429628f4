//! Rows of tokens, in memory or in a mapped file, at the width that their vocabulary needs.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::error::DataError;
use crate::memory_map::MemoryMap;

/// How a token is written. Little-endian everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenType {
    /// Unsigned, 8 bits.
    U8,
    /// Signed, 8 bits.
    I8,
    /// Unsigned, 16 bits.
    U16,
    /// Signed, 16 bits.
    I16,
    /// Unsigned, 32 bits.
    U32,
    /// Signed, 32 bits.
    I32,
    /// Signed, 64 bits.
    I64,
}

impl TokenType {
    /// The narrowest unsigned type for tokens below `vocabulary`.
    pub fn of_vocabulary(vocabulary: usize) -> TokenType {
        match vocabulary {
            0..=0x100 => TokenType::U8,
            0x101..=0x1_0000 => TokenType::U16,
            _ => TokenType::U32,
        }
    }

    /// Bytes of one token.
    pub fn width_bytes(self) -> usize {
        match self {
            TokenType::U8 | TokenType::I8 => 1,
            TokenType::U16 | TokenType::I16 => 2,
            TokenType::U32 | TokenType::I32 => 4,
            TokenType::I64 => 8,
        }
    }

    /// The token in `bytes`, which are as many as the type is wide.
    fn decode(self, bytes: &[u8]) -> i64 {
        let mut unsigned = [0; 8];
        unsigned[..bytes.len()].copy_from_slice(bytes);
        let unsigned = u64::from_le_bytes(unsigned);
        // Truncation to the width is meant: it gives the sign back.
        match self {
            TokenType::U8 | TokenType::U16 | TokenType::U32 => unsigned as i64,
            TokenType::I8 => i64::from(unsigned as u8 as i8),
            TokenType::I16 => i64::from(unsigned as u16 as i16),
            TokenType::I32 => i64::from(unsigned as u32 as i32),
            TokenType::I64 => unsigned as i64,
        }
    }

    /// Appends `token`, of which the type keeps the low bytes.
    pub fn encode(self, token: u32, into: &mut Vec<u8>) {
        let bytes = u64::from(token).to_le_bytes();
        into.extend_from_slice(&bytes[..self.width_bytes()]);
    }
}

#[derive(Clone, Debug)]
enum Storage {
    Owned(Arc<[u8]>),
    Mapped(Arc<MemoryMap>),
}

/// A row of tokens that is shared, not copied.
#[derive(Clone, Debug)]
pub struct Tokens {
    storage: Storage,
    /// Where the first token is.
    offset_bytes: usize,
    len: usize,
    token_type: TokenType,
}

impl Tokens {
    /// The tokens in `bytes`.
    pub(crate) fn owned(bytes: Vec<u8>, token_type: TokenType) -> Tokens {
        let len = bytes.len() / token_type.width_bytes();
        Tokens { storage: Storage::Owned(bytes.into()), offset_bytes: 0, len, token_type }
    }

    /// `len` tokens from byte `offset_bytes` of a mapped file, which is long enough.
    pub(crate) fn mapped(map: MemoryMap, offset_bytes: usize, len: usize, token_type: TokenType) -> Tokens {
        assert!(map.bytes().len() >= offset_bytes + len * token_type.width_bytes(), "tokens are within their file");
        Tokens { storage: Storage::Mapped(Arc::new(map)), offset_bytes, len, token_type }
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where token `index` is in its file, in bytes.
    pub fn offset_bytes(&self, index: usize) -> usize {
        self.offset_bytes + index * self.width_bytes()
    }

    /// Bytes of one token.
    pub fn width_bytes(&self) -> usize {
        self.token_type.width_bytes()
    }

    /// The tokens in `range`, which is within the row, as they are written.
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        let bytes = match &self.storage {
            Storage::Owned(bytes) => bytes,
            Storage::Mapped(map) => map.bytes(),
        };
        &bytes[self.offset_bytes(range.start)..self.offset_bytes(range.end)]
    }

    /// The tokens in `range`, which is within the row.
    pub fn iter(&self, range: Range<usize>) -> impl Iterator<Item = i64> + '_ {
        self.bytes(range).chunks_exact(self.width_bytes()).map(|bytes| self.token_type.decode(bytes))
    }

    /// Where in `range` the first token is that is negative or at least `vocabulary`.
    pub fn first_outside(&self, range: Range<usize>, vocabulary: usize) -> Option<(usize, i64)> {
        let legal = 0..i64::try_from(vocabulary).unwrap_or(i64::MAX);
        let start = range.start;
        let (index, token) = self.iter(range).enumerate().find(|(_, token)| !legal.contains(token))?;
        Some((start + index, token))
    }
}

/// Maps a file, or says why that cannot be.
pub(crate) fn map(path: &Path) -> Result<MemoryMap, DataError> {
    MemoryMap::open(path).map_err(|reason| DataError::Unreadable { path: path.to_path_buf(), reason })
}
