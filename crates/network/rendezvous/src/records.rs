//! The bytes of a connection as sealed records: the length of a record (4 bytes, little endian) is the head of a frame
//! ([`session::Sealer`]), and its bytes are the payload. A record is short, so that a connection needs little memory
//! for what is under way, however long its messages are.

use session::{BACK_BYTES, FRONT_BYTES, PayloadSeal, SEAL_BYTES, Session};

use crate::frame::FrameError;

/// Bytes of the longest record.
const RECORD_BYTES: usize = 16 << 10;
const FIELDS_BYTES: usize = size_of::<u32>();
const HEAD_BYTES: usize = FIELDS_BYTES + SEAL_BYTES;

/// Both directions of one end.
#[derive(Debug)]
pub(crate) struct Records {
    session: Session,
    /// The record whose bytes are awaited.
    awaited: Option<(usize, PayloadSeal)>,
}

impl Records {
    pub(crate) fn new(session: Session) -> Records {
        Records { session, awaited: None }
    }

    /// Appends the first of `bytes` to `sealed` as a record; returns how many it takes.
    pub(crate) fn seal(&mut self, bytes: &[u8], sealed: &mut Vec<u8>) -> usize {
        let len = bytes.len().min(RECORD_BYTES);
        let at = sealed.len();
        sealed.extend([0; FRONT_BYTES]);
        sealed.extend(u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
        sealed.extend([0; BACK_BYTES]);
        sealed.extend(&bytes[..len]);
        let (head, payload) = sealed[at..].split_at_mut(HEAD_BYTES);
        self.session.sealer.seal(head, payload);
        len
    }

    /// Moves the bytes of all records that have come whole from `sealed` to `opened`; returns how many records.
    ///
    /// # Errors
    /// Bytes that are not the next record of the other end.
    pub(crate) fn open(&mut self, sealed: &mut Vec<u8>, opened: &mut Vec<u8>) -> Result<usize, FrameError> {
        let (mut at, mut count) = (0, 0);
        loop {
            let (len, seal) = match self.awaited.take() {
                Some(awaited) => awaited,
                None => {
                    let Some(head) = sealed.get_mut(at..at + HEAD_BYTES) else { break };
                    let (fields, seal) = self.session.opener.open_head(head)?;
                    let len = fields.first_chunk().map_or(usize::MAX, |len| u32::from_le_bytes(*len) as usize);
                    at += HEAD_BYTES;
                    if len > RECORD_BYTES {
                        return Err(FrameError::TooLong { bytes: len, limit: RECORD_BYTES });
                    }
                    (len, seal)
                }
            };
            let Some(payload) = sealed.get_mut(at..at + len) else {
                self.awaited = Some((len, seal));
                break;
            };
            self.session.opener.open_payload(&seal, payload)?;
            opened.extend(&*payload);
            at += len;
            count += 1;
        }
        sealed.drain(..at);
        Ok(count)
    }
}
