//! Bytes of one message on a connection: a header of 24 bytes, then the payload.
//!
//! | bytes | content, little endian |
//! |---|---|
//! | 0 to 3 | `plch` |
//! | 4, 5 | version |
//! | 6, 7 | kind |
//! | 8 to 11 | length of the payload |
//! | 12 to 15 | lower half of the XXH3 of the first twelve bytes |
//! | 16 to 23 | XXH3 of the first twelve bytes and the payload |
//!
//! The header has a checksum of its own: a length that changed on its way must not be waited for.

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Version of the messages. Processes of different versions refuse each other.
pub(crate) const VERSION: u16 = 2;
/// Largest message after the rendezvous, in bytes.
pub const MAX_BYTES: usize = 64 << 20;
/// Largest message of the rendezvous, in bytes.
pub(crate) const MAX_INTRODUCTION_BYTES: usize = 1 << 20;
/// Bytes of a header.
pub(crate) const HEADER: usize = 24;
/// Bytes of a header that its checksums cover.
const FIELDS: usize = 12;
const MAGIC: [u8; 4] = *b"plch";

/// Bytes that are not a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The first bytes are not those of a message.
    #[error("the bytes are not those of a pleach process")]
    Magic,
    /// Another version.
    #[error(
        "it has version {0} of the messages, and this process version {VERSION}; start all processes with the same binary"
    )]
    Version(u16),
    /// An unknown kind.
    #[error("it sent a message of the unknown kind {0}")]
    Kind(u16),
    /// A message that is too long here.
    #[error("it announced a message of {bytes} bytes; at most {limit} are accepted")]
    TooLong {
        /// The announced length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Bytes that changed on their way.
    #[error("the checksum of a message is not that of its bytes")]
    Checksum,
    /// A payload that does not have the form of its kind.
    #[error("a message of kind {kind} is malformed: {reason}")]
    Payload {
        /// The kind.
        kind: u16,
        /// The reason.
        reason: String,
    },
}

/// A message as bytes of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub(crate) kind: u16,
    pub(crate) payload: &'a [u8],
}

impl Frame<'_> {
    /// The bytes of the frame.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + self.payload.len());
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(self.kind.to_le_bytes());
        // Senders check the size first; a longer payload has a wrong checksum and is refused.
        bytes.extend(u32::try_from(self.payload.len()).unwrap_or(u32::MAX).to_le_bytes());
        let of_all = checksum(&bytes, self.payload);
        bytes.extend(checksum_of_fields(&bytes).to_le_bytes());
        bytes.extend(of_all.to_le_bytes());
        bytes.extend(self.payload);
        bytes
    }
}

/// The frame at the start of `bytes` and its length; `None` where more bytes are needed.
///
/// # Errors
/// See [`FrameError`].
pub(crate) fn first(bytes: &[u8], limit: usize) -> Result<Option<(Frame<'_>, usize)>, FrameError> {
    let known = bytes.len().min(MAGIC.len());
    if bytes[..known] != MAGIC[..known] {
        return Err(FrameError::Magic);
    }
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else { return Ok(None) };
    let [_, _, _, _, version_low, version_high, kind_low, kind_high, length @ .., _, _, _, _, _, _, _, _, _, _, _, _] =
        *header;
    let version = u16::from_le_bytes([version_low, version_high]);
    if version != VERSION {
        return Err(FrameError::Version(version));
    }
    let (fields, checksums) = header.split_at(FIELDS);
    let (of_fields, of_all) = checksums.split_at(size_of::<u32>());
    if checksum_of_fields(fields).to_le_bytes() != of_fields {
        return Err(FrameError::Checksum);
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > limit {
        return Err(FrameError::TooLong { bytes: length, limit });
    }
    let Some(payload) = rest.get(..length) else { return Ok(None) };
    if checksum(fields, payload).to_le_bytes() != of_all {
        return Err(FrameError::Checksum);
    }
    Ok(Some((Frame { kind: u16::from_le_bytes([kind_low, kind_high]), payload }, HEADER + length)))
}

fn checksum_of_fields(fields: &[u8]) -> u32 {
    let [low @ .., _, _, _, _] = xxh3_64(fields).to_le_bytes();
    u32::from_le_bytes(low)
}

fn checksum(fields: &[u8], payload: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(fields);
    hash.update(payload);
    hash.digest()
}
