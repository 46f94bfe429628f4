//! Pieces over MPI: the receiver of a piece posts its place, and the sender sends from the memory of the message.
//!
//! Sockets carry all frames. A grant is answered by exactly one message of MPI, whose tag is the place: the part that
//! was asked for, or nothing where the sender has taken the message back. So no place is free while a library may still
//! write to it, and no two messages under way have the same tag.

use super::arrival::Arrival;
use super::connection::Connection;
use super::frame::Part;
use super::outbox::Outgoing;
use super::pieces::Piece;
use mpi::{Endpoint, IDLE_TAG, Source, Target};
use std::ops::Range;
use std::sync::Arc;

/// The tags of one world.
#[derive(Clone, Debug)]
pub(super) struct Tags {
    endpoint: Arc<Endpoint>,
    first: u32,
    count: u32,
}

impl Tags {
    /// Tags for `places` places, apart from those of other worlds of this process; `None` if MPI has not as many.
    /// All processes open the same worlds in the same order.
    pub(super) fn of_next_world(endpoint: &Arc<Endpoint>, places: usize) -> Option<Tags> {
        let count = u32::try_from(places).ok().filter(|count| (1..=IDLE_TAG).contains(count))?;
        let worlds = (IDLE_TAG / count) as usize;
        let number = (endpoint.next_number() % worlds) as u32;
        Some(Tags { endpoint: Arc::clone(endpoint), first: number * count, count })
    }

    /// The way to `peer`.
    pub(super) fn route_to(&self, peer: usize) -> MpiRoute {
        MpiRoute { tags: self.clone(), peer }
    }

    /// The library and its messages.
    pub(super) fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }
}

/// The way of pieces between this process and another one.
pub(super) struct MpiRoute {
    tags: Tags,
    peer: usize,
}

impl MpiRoute {
    /// Sends `range` of `message` to place `slot` of the peer; false if it has no such place.
    pub(super) fn send(&self, slot: u32, message: Arc<Outgoing>, range: Range<usize>) -> bool {
        let Tags { endpoint, first, count } = &self.tags;
        if slot >= *count {
            return false;
        }
        endpoint.send(self.peer, first + slot, Box::new(Sending { message, range }));
        true
    }

    /// Answers the grant of place `slot` for a message that was taken back; false if the peer has no such place.
    pub(super) fn send_nothing(&self, slot: u32) -> bool {
        let Tags { endpoint, first, count } = &self.tags;
        if slot >= *count {
            return false;
        }
        endpoint.send(self.peer, first + slot, Box::new(Nothing));
        true
    }

    pub(super) fn receive(&self, receiving: Receiving) {
        let tag = self.tags.first + receiving.part.slot;
        self.tags.endpoint.receive(self.peer, tag, Box::new(receiving));
    }
}

/// A part of a message that is being sent.
struct Sending {
    message: Arc<Outgoing>,
    range: Range<usize>,
}

// SAFETY: the bytes of a payload stay in place while it lives: it shares or borrows memory that its owner does not
// change or free before the payload is dropped, as receivers in this process rely on, too. `message` keeps the payload.
unsafe impl Source for Sending {
    fn bytes(&self) -> &[u8] {
        self.message.payload.bytes().get(self.range.clone()).unwrap_or_default()
    }
}

/// The answer for a message that was taken back.
struct Nothing;

// SAFETY: an empty slice has no memory.
unsafe impl Source for Nothing {
    fn bytes(&self) -> &[u8] {
        &[]
    }
}

/// A part that was asked for.
pub(super) struct Receiving {
    pub(super) connection: Arc<Connection>,
    pub(super) arrival: Arc<Arrival>,
    pub(super) sender: usize,
    pub(super) part: Part,
    pub(super) piece: Piece,
}

// SAFETY: a place is memory of a mapping that lives as long as the piece, and belongs to that piece alone.
unsafe impl Target for Receiving {
    fn place(&mut self) -> &mut [u8] {
        self.piece.bytes_mut(self.part.len as usize)
    }

    fn arrived(self: Box<Self>, len_bytes: usize) -> Result<(), String> {
        let Receiving { connection, arrival, sender, part, piece } = *self;
        match len_bytes {
            0 => Ok(()),
            len if len == part.len as usize => {
                connection.fill(part, &arrival, sender, piece);
                Ok(())
            }
            len => Err(format!("sent {len} bytes for a piece of {}", part.len)),
        }
    }
}
