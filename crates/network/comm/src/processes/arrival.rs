//! A receive whose messages arrive in pieces.

use super::connection::Fault;
use super::frame::Part;
use super::pieces::Piece;
use crate::threads::inbox::Inbox;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use sync::lock;

/// The pieces of the messages of one receive: asked for, and come. Pieces of one message come in the order asked for;
/// those over MPI may come in any order and are put into that one.
pub(super) struct Arrival {
    inbox: Arc<Inbox>,
    senders: Mutex<Vec<Sender>>,
}

#[derive(Default)]
struct Sender {
    granted: VecDeque<Granted>,
    /// Whether a granted piece is being read from the socket.
    is_filling: bool,
    arrived: VecDeque<Piece>,
    /// Whether nothing more comes.
    is_withdrawn: bool,
}

/// A part that was asked for and is not the next to have come.
enum Granted {
    /// Its place waits here.
    Requested(Piece, Part),
    /// A library of MPI has its place.
    RequestedOverMpi(Part),
    /// It has come over MPI, before an earlier one.
    Come(Piece),
}

/// Whether a message still has pieces under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnderWay {
    Some,
    None,
}

impl Arrival {
    /// A receive of `senders` messages, whose owner waits at `inbox`.
    pub(super) fn new(inbox: &Arc<Inbox>, senders: usize) -> Arc<Arrival> {
        let senders = (0..senders).map(|_| Sender::default()).collect();
        Arc::new(Arrival { inbox: Arc::clone(inbox), senders: Mutex::new(senders) })
    }

    /// Notes that `sender` is being asked for a part, for which `piece` is the place. False if it has taken its message
    /// back.
    pub(super) fn grant(&self, sender: usize, piece: Piece, part: Part) -> bool {
        let senders = &mut lock(&self.senders);
        if senders[sender].is_withdrawn {
            return false;
        }
        senders[sender].granted.push_back(Granted::Requested(piece, part));
        true
    }

    /// Grants a piece as [`Arrival::grant`] does, where a library of MPI has the place.
    pub(super) fn grant_over_mpi(&self, sender: usize, part: Part) -> bool {
        let senders = &mut lock(&self.senders);
        if senders[sender].is_withdrawn {
            return false;
        }
        senders[sender].granted.push_back(Granted::RequestedOverMpi(part));
        true
    }

    /// Notes that a part has come over MPI, and moves what is next in order to the row.
    pub(super) fn fill(&self, sender: usize, part: Part, piece: Piece) -> UnderWay {
        let mut senders = lock(&self.senders);
        let Sender { granted, arrived, .. } = &mut senders[sender];
        let is_it = |granted: &Granted| match granted {
            Granted::RequestedOverMpi(asked) => *asked == part,
            Granted::Requested(..) | Granted::Come(_) => false,
        };
        let was_empty = arrived.is_empty();
        let Some(place) = granted.iter().position(is_it) else {
            // The message was taken back. A piece that is dropped wakes an inbox, whose owner may wait for this lock.
            drop(senders);
            drop(piece);
            return UnderWay::None;
        };
        granted[place] = Granted::Come(piece);
        while let Some(Granted::Come(_)) = granted.front() {
            if let Some(Granted::Come(piece)) = granted.pop_front() {
                arrived.push_back(piece);
            }
        }
        let completes_row = was_empty && !arrived.is_empty() && senders.iter().all(Sender::is_ready);
        let under_way = if senders[sender].granted.is_empty() { UnderWay::None } else { UnderWay::Some };
        drop(senders);
        if completes_row {
            self.inbox.wake_from_completion();
        }
        under_way
    }

    /// The place for the part that has begun to come.
    ///
    /// # Errors
    /// Another part than was asked for next.
    pub(super) fn begin(&self, sender: usize, part: Part) -> Result<Piece, Fault> {
        let mut senders = lock(&self.senders);
        let granted = senders[sender].granted.pop_front();
        senders[sender].is_filling = true;
        // A piece that is dropped wakes an inbox, whose owner may wait for this lock.
        drop(senders);
        match granted {
            Some(Granted::Requested(piece, expected)) if expected == part => Ok(piece),
            Some(Granted::Requested(..) | Granted::RequestedOverMpi(_) | Granted::Come(_)) | None => {
                Err(Fault::Unexpected("a piece that was not asked for"))
            }
        }
    }

    /// Notes that a part is in its place.
    pub(super) fn complete(&self, sender: usize, piece: Piece) -> UnderWay {
        let mut senders = lock(&self.senders);
        senders[sender].arrived.push_back(piece);
        senders[sender].is_filling = false;
        let completes_row = senders[sender].arrived.len() == 1 && senders.iter().all(Sender::is_ready);
        let under_way = if senders[sender].granted.is_empty() { UnderWay::None } else { UnderWay::Some };
        drop(senders);
        if completes_row {
            self.inbox.wake_from_completion();
        }
        under_way
    }

    /// Notes that nothing more comes from `sender`; returns the places that it was granted.
    pub(super) fn withdraw(&self, sender: usize) -> Vec<Piece> {
        let mut senders = lock(&self.senders);
        senders[sender].is_withdrawn = true;
        let granted = senders[sender].granted.drain(..);
        let piece = |granted| match granted {
            Granted::Requested(piece, _) | Granted::Come(piece) => Some(piece),
            Granted::RequestedOverMpi(_) => None,
        };
        granted.filter_map(piece).collect()
    }

    /// Whether `sender` has pieces under way.
    pub(super) fn under_way(&self, sender: usize) -> UnderWay {
        let sender = &lock(&self.senders)[sender];
        if sender.granted.is_empty() && !sender.is_filling { UnderWay::None } else { UnderWay::Some }
    }

    /// Whether a piece of every message has come. One of a withdrawn message never comes: its sender reports the
    /// reason, or leaves.
    pub(super) fn is_ready(&self) -> bool {
        lock(&self.senders).iter().all(Sender::is_ready)
    }

    /// The senders of which nothing more comes, and whose next piece has not come.
    pub(super) fn withdrawn(&self) -> Vec<usize> {
        let senders = lock(&self.senders);
        let is_lost = |sender: &Sender| sender.is_withdrawn && !sender.is_filling && !sender.is_ready();
        senders.iter().enumerate().filter(|(_, sender)| is_lost(sender)).map(|(index, _)| index).collect()
    }

    /// The first sender whose next piece has not come.
    pub(super) fn first_missing(&self) -> Option<usize> {
        lock(&self.senders).iter().position(|sender| !sender.is_ready())
    }

    /// The next piece of each message, which have all come.
    pub(super) fn take_row(&self) -> Vec<Piece> {
        lock(&self.senders).iter_mut().filter_map(|sender| sender.arrived.pop_front()).collect()
    }
}

impl Sender {
    fn is_ready(&self) -> bool {
        !self.arrived.is_empty()
    }
}
