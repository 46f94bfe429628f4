//! Frames on a connection, as every protocol between processes has them: fields of a fixed size and bytes after them,
//! sealed ([`crate::seal`]). A head is opened and read as soon as it is whole, and kept until its payload is.

use crate::seal::{BACK_BYTES, FRONT_BYTES, Opener, PayloadSeal, SEAL_BYTES, SealError, Sealer};

impl Sealer {
    /// Appends the next frame to `sealed`: a head of `fields`, and `payload` after it.
    pub fn append(&mut self, fields: &[u8], payload: &[u8], sealed: &mut Vec<u8>) {
        let (at, head_bytes) = (sealed.len(), fields.len() + SEAL_BYTES);
        sealed.reserve(head_bytes + payload.len());
        sealed.extend_from_slice(&[0; FRONT_BYTES]);
        sealed.extend_from_slice(fields);
        sealed.extend_from_slice(&[0; BACK_BYTES]);
        sealed.extend_from_slice(payload);
        let (head, payload) = sealed[at..].split_at_mut(head_bytes);
        self.seal(head, payload);
    }
}

/// The frames that come from the other end. `H` is what their fields say.
#[derive(Debug)]
pub struct Incoming<H> {
    opener: Opener,
    /// The last head, while its payload is awaited.
    kept: Option<Head<H>>,
}

/// An open head.
#[derive(Clone, Debug)]
pub struct Head<H> {
    /// Its fields.
    pub fields: H,
    /// The seal of its payload.
    pub seal: PayloadSeal,
}

impl<H> Incoming<H> {
    /// The frames that the other end of a session seals.
    pub fn new(opener: Opener) -> Incoming<H> {
        Incoming { opener, kept: None }
    }

    /// The head that was kept, or the next one at the start of `arrived`, whose fields have `fields_bytes` and are read
    /// by `decode`; and how many bytes of `arrived` it is. `None` where more have to come first.
    ///
    /// # Errors
    /// Anything but the next head of the other end, after which nothing of the connection may be used; that of
    /// `decode`.
    pub fn head<E: From<SealError>>(
        &mut self,
        arrived: &mut [u8],
        fields_bytes: usize,
        decode: impl FnOnce(&[u8]) -> Result<H, E>,
    ) -> Result<Option<(Head<H>, usize)>, E> {
        if let Some(kept) = self.kept.take() {
            return Ok(Some((kept, 0)));
        }
        let head_bytes = fields_bytes + SEAL_BYTES;
        let Some(head) = arrived.get_mut(..head_bytes) else { return Ok(None) };
        let (fields, seal) = self.opener.open_head(head)?;
        Ok(Some((Head { fields: decode(fields)?, seal }, head_bytes)))
    }

    /// Keeps a head whose payload has not come yet.
    pub fn keep(&mut self, head: Head<H>) {
        self.kept = Some(head);
    }

    /// Opens the payload of a frame in place.
    ///
    /// # Errors
    /// Other bytes than the other end has sealed.
    pub fn open(&self, seal: &PayloadSeal, payload: &mut [u8]) -> Result<(), SealError> {
        self.opener.open_payload(seal, payload)
    }
}
