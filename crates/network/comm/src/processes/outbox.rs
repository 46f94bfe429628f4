//! The frames that wait for room in a socket.
//!
//! Any thread may post a short frame: it writes as much as the socket takes and returns. The thread that waits for
//! sockets writes the rest, and all pieces, one between two reads. Short frames go before pieces, so that a grant or a
//! small message never waits for a large one.

use super::frame::{Frame, Header, Part, Route};
use crate::threads::inbox::Payload;
use mesh::Rank;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use session::Sealer;
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes of short frames that are put together before a write.
const STAGED_BYTES: usize = 32 << 10;

/// A message that its sender keeps until the receiver needs it no more.
pub(super) struct Outgoing {
    pub(super) number: u64,
    pub(super) address: crate::threads::remote::Address,
    pub(super) payload: Payload,
}

/// The bytes after a short frame.
pub(super) enum Body {
    Empty,
    Copied(Arc<Vec<u8>>),
    Text(String),
}

impl Body {
    fn bytes(&self) -> &[u8] {
        match self {
            Body::Empty => &[],
            Body::Copied(bytes) => bytes,
            Body::Text(text) => text.as_bytes(),
        }
    }
}

/// The frames that a write leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flushed {
    /// Nothing, or more than the socket takes: it has an event when it takes more.
    Done,
    /// Pieces that were not begun.
    Pieces,
}

/// The frames of one connection, and the bytes that it may send before they are asked for.
pub(super) struct Outbox {
    short: VecDeque<(Frame, Body)>,
    pieces: VecDeque<(Arc<Outgoing>, Part)>,
    /// Sealed frames, of which `written` bytes are out.
    staged: Vec<u8>,
    written: usize,
    sealer: Sealer,
    /// Bytes of the peer's memory for small messages that are free.
    credit: usize,
    is_open: bool,
}

impl Outbox {
    pub(super) fn new(sealer: Sealer, credit: usize) -> Outbox {
        Outbox {
            short: VecDeque::new(),
            pieces: VecDeque::new(),
            staged: Vec::with_capacity(STAGED_BYTES),
            written: 0,
            sealer,
            credit,
            is_open: true,
        }
    }

    /// Whether everything is written.
    pub(super) fn is_empty(&self) -> bool {
        self.short.is_empty() && self.pieces.is_empty() && self.written == self.staged.len()
    }

    /// Adds a short frame. After [`Outbox::close`] it is dropped.
    pub(super) fn post(&mut self, frame: Frame, body: Body) {
        if self.is_open {
            self.short.push_back((frame, body));
        }
    }

    /// Adds a part of `message`; its range must be inside the message.
    pub(super) fn post_piece(&mut self, message: Arc<Outgoing>, part: Part) {
        if self.is_open {
            self.pieces.push_back((message, part));
        }
    }

    /// Uses `bytes` of the peer's memory for small messages; false if it has not that much left.
    pub(super) fn use_credit(&mut self, bytes: usize) -> bool {
        let left = self.credit.checked_sub(bytes);
        self.credit = left.unwrap_or(self.credit);
        left.is_some()
    }

    /// Notes that the peer has `bytes` free again; returns how much it has.
    pub(super) fn add_credit(&mut self, bytes: usize) -> usize {
        self.credit = self.credit.saturating_add(bytes);
        self.credit
    }

    /// Lets go of the memory of message `number`: a piece under way is sealed and needs it no more.
    pub(super) fn release(&mut self, number: u64) {
        self.pieces.retain(|(message, _)| message.number != number);
    }

    /// Drops what is not written, and everything that is posted from now on.
    pub(super) fn close(&mut self) {
        self.is_open = false;
        self.short.clear();
        self.pieces.clear();
        self.staged.clear();
        self.written = 0;
    }

    /// Takes no more frames but writes those that are there.
    pub(super) fn end(&mut self) {
        self.is_open = false;
    }

    /// Writes until the socket takes no more, and begins at most `pieces` pieces.
    ///
    /// # Errors
    /// The socket's; nothing can be written any more.
    pub(super) fn flush(&mut self, socket: BorrowedFd<'_>, mut pieces: usize) -> Result<Flushed, Errno> {
        loop {
            if self.written == self.staged.len() {
                self.stage(&mut pieces);
                if self.staged.is_empty() {
                    return Ok(if self.pieces.is_empty() { Flushed::Done } else { Flushed::Pieces });
                }
            }
            // The end of a piece goes with the next one, not in a packet of its own.
            let flags = if self.pieces.is_empty() { SendFlags::empty() } else { SendFlags::MORE };
            match send(socket, &self.staged[self.written..], flags | SendFlags::NOSIGNAL) {
                Ok(sent) => self.written += sent,
                Err(Errno::AGAIN) => return Ok(Flushed::Done),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Seals the next frames: short ones while they fit, then at most one of `pieces` pieces.
    fn stage(&mut self, pieces: &mut usize) {
        self.staged.clear();
        self.written = 0;
        while self.staged.len() < STAGED_BYTES / 2 {
            let Some((frame, body)) = self.short.pop_front() else { break };
            self.seal(frame, body.bytes());
        }
        if !self.short.is_empty() || *pieces == 0 {
            return;
        }
        if let Some((message, part)) = self.pieces.pop_front() {
            let start = usize::try_from(part.offset).unwrap_or(usize::MAX);
            let range = start..start.saturating_add(part.len as usize);
            self.seal(Frame::Piece(part, Route::Inline), message.payload.bytes().get(range).unwrap_or_default());
            *pieces -= 1;
        }
    }

    fn seal(&mut self, frame: Frame, payload: &[u8]) {
        Header::new(frame, payload).seal(payload, &mut self.sealer, &mut self.staged);
    }
}

impl Outgoing {
    /// The receiver.
    pub(super) fn destination(&self) -> Rank {
        self.address.destination
    }
}
