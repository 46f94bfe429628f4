//! A message as bytes: its kind (2 bytes), the length of its content (4 bytes), both little endian, and the content.
//!
//! Connections carry these bytes in sealed records ([`crate::records`]): nobody but a process of the run writes them,
//! and none of them changes on its way.

use session::{HandshakeError, SealError};

/// Largest message after the rendezvous, in bytes.
pub const MAX_BYTES: usize = 64 << 20;
/// Largest message of the rendezvous, in bytes.
pub(crate) const MAX_INTRODUCTION_BYTES: usize = 1 << 20;
/// Bytes before the content.
const HEADER: usize = 6;

/// Bytes that are not a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The first bytes are not those of a process of this version and this run.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// Bytes that changed on their way.
    #[error("it sent {0}")]
    Seal(#[from] SealError),
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
        bytes.extend(self.kind.to_le_bytes());
        // Senders check the size first; a longer payload is refused.
        bytes.extend(u32::try_from(self.payload.len()).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend(self.payload);
        bytes
    }
}

/// The frame at the start of `bytes` and its length; `None` where more bytes are needed.
///
/// # Errors
/// See [`FrameError`].
pub(crate) fn first(bytes: &[u8], limit: usize) -> Result<Option<(Frame<'_>, usize)>, FrameError> {
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else { return Ok(None) };
    let [kind_low, kind_high, length @ ..] = *header;
    let length = u32::from_le_bytes(length) as usize;
    if length > limit {
        return Err(FrameError::TooLong { bytes: length, limit });
    }
    let Some(payload) = rest.get(..length) else { return Ok(None) };
    Ok(Some((Frame { kind: u16::from_le_bytes([kind_low, kind_high]), payload }, HEADER + length)))
}
