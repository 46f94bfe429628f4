//! The bytes of a connection as sealed records: a record is a frame ([`session::Incoming`]) whose only field is its
//! length (4 bytes, little endian). A record is short, so that a connection needs little memory for what is under way,
//! however long its messages are.

use session::{Incoming, Sealer, Session};

use crate::frame::FrameError;

/// Bytes of the longest record.
const RECORD_BYTES: usize = 16 << 10;
const FIELDS_BYTES: usize = size_of::<u32>();

/// Both directions of one end.
#[derive(Debug)]
pub(crate) struct Records {
    sealer: Sealer,
    incoming: Incoming<usize>,
}

impl Records {
    pub(crate) fn new(session: Session) -> Records {
        Records { sealer: session.sealer, incoming: Incoming::new(session.opener) }
    }

    /// Appends the first of `bytes` to `sealed` as a record; returns how many it takes.
    pub(crate) fn seal(&mut self, bytes: &[u8], sealed: &mut Vec<u8>) -> usize {
        let len = bytes.len().min(RECORD_BYTES);
        self.sealer.append(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes(), &bytes[..len], sealed);
        len
    }

    /// Moves the bytes of all records that have come whole from `sealed` to `opened`; returns how many records.
    ///
    /// # Errors
    /// Bytes that are not the next record of the other end.
    pub(crate) fn open(&mut self, sealed: &mut Vec<u8>, opened: &mut Vec<u8>) -> Result<usize, FrameError> {
        let (mut at, mut count) = (0, 0);
        while let Some((head, taken)) = self.incoming.head(&mut sealed[at..], FIELDS_BYTES, length)? {
            at += taken;
            let Some(payload) = sealed.get_mut(at..at + head.fields) else {
                self.incoming.keep(head);
                break;
            };
            self.incoming.open(&head.seal, payload)?;
            opened.extend(&*payload);
            at += head.fields;
            count += 1;
        }
        sealed.drain(..at);
        Ok(count)
    }
}

/// The length of a record, by the fields of its head.
fn length(fields: &[u8]) -> Result<usize, FrameError> {
    let len = fields.first_chunk().map_or(usize::MAX, |len| u32::from_le_bytes(*len) as usize);
    if len > RECORD_BYTES { Err(FrameError::TooLong { bytes: len, limit: RECORD_BYTES }) } else { Ok(len) }
}
