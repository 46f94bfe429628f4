//! The transport between threads, and from them to the ranks of other processes.

use super::inbox::{Envelope, Inbox, Interrupted, Liveness, Payload};
use super::pool::Pool;
use super::remote::{Address, PieceWise, Polling};
use super::shared_memory::{Ticket, lending};
use super::world::{Place, World};
use crate::error::{AbortCause, CommError};
use crate::tag::Tag;
use crate::transport::{Chunks, Loan, Message, SendHandle, Timeouts, Transport, fill};
use device::Operation;
use mesh::Rank;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use sync::lock;

/// The end of a rank that is a thread of this process. Messages between threads are read where the sender has them;
/// those of other processes ([`processes::open`](crate::processes::open)) arrive in pieces.
///
/// Dropping it ends this rank's part: peers that still need it get [`CommError::PeerLeft`]. Dropping
/// it while the thread panics aborts the world.
pub struct ThreadTransport {
    rank: Rank,
    place: Place,
    inbox: Arc<Inbox>,
    pool: Pool,
    own: Mutex<LocalState>,
}

/// State that only this rank accesses.
#[derive(Default)]
struct LocalState {
    /// Reused by every receive.
    taken: Vec<Envelope>,
    /// Reused by every scope; shared with receivers only while messages are under way.
    ticket: Option<Arc<Ticket>>,
    /// Loans that nobody has waited for yet.
    sends: HashMap<u64, OpenSend>,
    next_send: u64,
}

struct OpenSend {
    ticket: Arc<Ticket>,
    to: Rank,
    tag: Tag,
    operation: Operation,
}

/// Handles the messages of a receive.
type OnTaken<'a> = &'a mut dyn FnMut(&[Envelope], &mut Polling<'_>) -> Result<(), CommError>;

impl ThreadTransport {
    /// The ends of a new world, by rank.
    pub fn world(world_size: usize, timeouts: Timeouts) -> Vec<ThreadTransport> {
        ThreadTransport::lanes(world_size, 1, timeouts).into_iter().flatten().collect()
    }

    /// The ends of a new world with `num_lanes` lanes, by lane, then by rank. Each thread of a rank that communicates
    /// has a lane of its own; the
    /// failure of one is the failure of all.
    pub fn lanes(world_size: usize, num_lanes: usize, timeouts: Timeouts) -> Vec<Vec<ThreadTransport>> {
        ThreadTransport::ends(&Arc::new(World::of_threads(world_size, num_lanes, timeouts)))
    }

    /// The ends of the ranks of this process, by lane, then in rank order.
    pub(crate) fn ends(world: &Arc<World>) -> Vec<Vec<ThreadTransport>> {
        let end = |lane: usize, rank: Rank, inbox: &Arc<Inbox>| ThreadTransport {
            rank,
            inbox: Arc::clone(inbox),
            place: Place { world: Arc::clone(world), lane },
            pool: Pool::default(),
            own: Mutex::default(),
        };
        let lane_ends = |lane| world.inboxes(lane).map(|(rank, inbox)| end(lane, rank, inbox)).collect();
        (0..world.num_lanes()).map(lane_ends).collect()
    }

    fn polling(&self) -> Polling<'_> {
        Polling::new(self.place.world.remote())
    }

    fn own(&self) -> std::sync::MutexGuard<'_, LocalState> {
        lock(&self.own)
    }

    fn check_failure(&self) -> Result<(), CommError> {
        match self.place.world.failure() {
            None => Ok(()),
            Some(cause) => Err(CommError::Aborted { rank: self.rank, by: cause.rank, why: cause.description.clone() }),
        }
    }

    fn deliver(&self, to: Rank, tag: Tag, operation: Operation, payload: Payload) -> Result<(), CommError> {
        assert_ne!(to, self.rank, "a rank sends to others only");
        let delivered = match (self.place.world.inbox(self.place.lane, to), self.place.world.remote()) {
            (Some(inbox), _) => inbox.deliver(self.rank, Envelope { tag, operation, payload }).is_ok(),
            (None, Some(remote)) if !self.place.has_left(to) => {
                let (source, lane) = (self.rank, self.place.lane);
                remote.post(Address { source, destination: to, lane, tag, operation }, payload);
                true
            }
            (None, _) => false,
        };
        if delivered { Ok(()) } else { Err(self.peer_left(to, tag, operation)) }
    }

    fn peer_left(&self, peer: Rank, tag: Tag, operation: Operation) -> CommError {
        // A rank that failed leaves too; the failure says more.
        self.check_failure().err().unwrap_or(CommError::PeerLeft { rank: self.rank, peer, operation, tag })
    }

    fn interrupted(&self, interrupted: Interrupted, peer: Rank, tag: Tag, operation: Operation) -> CommError {
        match interrupted {
            Interrupted::Left(gone) => self.peer_left(gone, tag, operation),
            Interrupted::Failed => self.peer_left(peer, tag, operation),
            Interrupted::Deadline(missing, waited) => CommError::Deadline {
                rank: self.rank,
                peer: missing.unwrap_or(peer),
                operation,
                tag,
                waited_ms: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
                setting: self.place.world.timeouts().setting(),
            },
        }
    }

    /// Waits for a ticket and, when that fails, takes the unread messages back. `receiver` is one of
    /// those that are to read, named when nothing better is known.
    fn complete(&self, ticket: &Arc<Ticket>, receiver: Rank, tag: Tag, operation: Operation) -> Result<(), CommError> {
        let mut polling = self.polling();
        let result = self.inbox.complete(ticket, (self.place.world.timeouts().wait, &mut polling), &self.place);
        // The next steps may wait for the thread of the sockets.
        drop(polling);
        let Err(interrupted) = result else {
            if ticket.take_lost() {
                let gone = self.one_that_left(receiver);
                return Err(self.peer_left(gone, tag, operation));
            }
            return Ok(());
        };
        let late = self.take_back(ticket).unwrap_or(receiver);
        self.inbox.wait_until_closed(ticket);
        Err(self.interrupted(interrupted, late, tag, operation))
    }

    /// `likely` if it has left, otherwise the first other rank that has.
    fn one_that_left(&self, likely: Rank) -> Rank {
        let others = (0..self.world_size()).map(Rank).filter(|&rank| rank != self.rank);
        std::iter::once(likely).chain(others).find(|&rank| self.place.has_left(rank)).unwrap_or(likely)
    }

    /// Takes the unread messages of `ticket` back; returns the first rank that had not read.
    fn take_back(&self, ticket: &Arc<Ticket>) -> Option<Rank> {
        let mut late = None;
        for (rank, inbox) in self.place.world.inboxes(self.place.lane) {
            if inbox.take_back(ticket) && late.is_none() {
                late = Some(rank);
            }
        }
        let remote = self.place.world.remote().and_then(|remote| remote.take_back(ticket));
        late.into_iter().chain(remote).min()
    }

    /// Waits for the messages of a receive, compares them with it and hands them to `work`.
    fn with_taken(
        &self,
        from: &[Rank],
        tag: Tag,
        operation: Operation,
        len_bytes: usize,
        work: OnTaken<'_>,
    ) -> Result<(), CommError> {
        self.check_failure()?;
        let Some(&first) = from.first() else {
            return Ok(());
        };
        let mut taken = std::mem::take(&mut self.own().taken);
        let (wait, mut polling) = (self.place.world.timeouts().wait, self.polling());
        let result = self
            .inbox
            .take(from, tag, (wait, &mut polling), &self.place, &mut taken)
            .map_err(|interrupted| self.interrupted(interrupted, first, tag, operation))
            .and_then(|()| self.check_taken(&taken, from, tag, operation, len_bytes))
            .and_then(|()| work(&taken, &mut polling));
        drop(polling);
        taken.clear();
        self.own().taken = taken;
        result
    }

    fn check_taken(
        &self,
        taken: &[Envelope],
        from: &[Rank],
        tag: Tag,
        operation: Operation,
        len_bytes: usize,
    ) -> Result<(), CommError> {
        for (envelope, &peer) in taken.iter().zip(from) {
            let peer_bytes = envelope.payload.len_bytes();
            if envelope.operation != operation || peer_bytes != len_bytes {
                return Err(CommError::Mismatch {
                    rank: self.rank,
                    peer,
                    operation,
                    peer_operation: envelope.operation,
                    tag,
                    expected_bytes: len_bytes,
                    peer_bytes,
                });
            }
        }
        Ok(())
    }

    fn fold_taken(
        &self,
        (taken, polling): (&[Envelope], &mut Polling<'_>),
        from: &[Rank],
        tag: Tag,
        operation: Operation,
        len_bytes: usize,
        fold: &mut dyn FnMut(usize, &dyn Chunks),
    ) -> Result<(), CommError> {
        if len_bytes == 0 {
            return Ok(());
        }
        match self.place.world.remote() {
            Some(remote) if taken.iter().any(|envelope| envelope.payload.announced().is_some()) => {
                let (inbox, wait) = (&self.inbox, self.place.world.timeouts().wait);
                let pieces = PieceWise { taken, from, len_bytes, inbox, wait, world: &self.place };
                let first = from.first().copied().unwrap_or(self.rank);
                let folded = remote.fold_pieces(&pieces, polling, fold);
                folded.map_err(|early| self.interrupted(early, first, tag, operation))
            }
            Some(_) | None => {
                polling.release();
                fold(0, &Taken(taken));
                Ok(())
            }
        }
    }

    /// Fills `into` from messages in memory that this process may read. False where it may not, or not any more.
    fn fill_taken(&self, taken: &[Envelope], polling: &mut Polling<'_>, into: &mut [&mut [u8]]) -> bool {
        polling.release_for(into.first().map_or(0, |first| first.len()));
        taken.iter().zip(into).all(|(envelope, slice)| {
            match (envelope.payload.announced(), self.place.world.remote()) {
                (Some(announced), Some(remote)) => remote.read(announced, slice),
                (Some(_), None) => false,
                (None, _) => {
                    slice.copy_from_slice(envelope.payload.bytes());
                    true
                }
            }
        })
    }
}

struct Taken<'a>(&'a [Envelope]);

impl Chunks for Taken<'_> {
    fn chunk(&self, index: usize) -> &[u8] {
        self.0[index].payload.bytes()
    }
}

impl Transport for ThreadTransport {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn world_size(&self) -> usize {
        self.place.world.world_size()
    }

    fn post_copy(&self, message: Message<'_>) -> Result<(), CommError> {
        self.check_failure()?;
        let bytes = self.pool.copy(message.bytes);
        for &to in message.to {
            let payload = Payload::Copied(Arc::clone(&bytes));
            self.deliver(to, message.tag, message.operation, payload)?;
        }
        Ok(())
    }

    fn post_loan(&self, to: Rank, tag: Tag, operation: Operation, loan: Loan) -> Result<SendHandle, CommError> {
        self.check_failure()?;
        let ticket = Ticket::new(Arc::clone(&self.inbox));
        let payload = Payload::Loan(loan, ticket.hold());
        self.deliver(to, tag, operation, payload)?;
        let mut own = self.own();
        let id = own.next_send;
        own.next_send += 1;
        let open = OpenSend { ticket, to, tag, operation };
        own.sends.insert(id, open);
        Ok(SendHandle(id))
    }

    fn is_complete(&self, send: SendHandle) -> bool {
        let mut own = self.own();
        let is_open = (own.sends.get(&send.0)).is_some_and(|open| !open.ticket.is_closed());
        if !is_open {
            own.sends.remove(&send.0);
        }
        !is_open
    }

    fn wait_send(&self, send: SendHandle) -> Result<(), CommError> {
        let Some(open) = self.own().sends.remove(&send.0) else {
            return Ok(());
        };
        self.complete(&open.ticket, open.to, open.tag, open.operation)
    }

    fn lend<'a>(
        &self,
        messages: &mut dyn Iterator<Item = Message<'a>>,
        during: &mut dyn FnMut() -> Result<(), CommError>,
    ) -> Result<(), CommError> {
        self.check_failure()?;
        let ticket = self.own().ticket.take();
        let ticket = ticket.unwrap_or_else(|| Ticket::new(Arc::clone(&self.inbox)));
        let again = Arc::clone(&ticket);
        let take_back = |ticket: &Arc<Ticket>| {
            self.take_back(ticket);
        };
        let result = lending(ticket, take_back, |scope| {
            let mut last = None;
            for message in messages {
                for &to in message.to {
                    let lent = Payload::BorrowedBytes(scope.lend(message.bytes));
                    self.deliver(to, message.tag, message.operation, lent)?;
                    last = Some((to, message.tag, message.operation));
                }
            }
            during()?;
            match last {
                None => Ok(()),
                Some((to, tag, operation)) => self.complete(scope.ticket(), to, tag, operation),
            }
        });
        self.own().ticket = Some(again);
        result
    }

    fn receive(
        &self,
        from: &[Rank],
        tag: Tag,
        operation: Operation,
        len_bytes: usize,
        fold: &mut dyn FnMut(usize, &dyn Chunks),
    ) -> Result<(), CommError> {
        self.with_taken(from, tag, operation, len_bytes, &mut |taken, polling| {
            self.fold_taken((taken, polling), from, tag, operation, len_bytes, fold)
        })
    }

    fn receive_into(
        &self,
        from: &[Rank],
        tag: Tag,
        operation: Operation,
        into: &mut [&mut [u8]],
    ) -> Result<(), CommError> {
        let len_bytes = into.first().map_or(0, |first| first.len());
        self.with_taken(from, tag, operation, len_bytes, &mut |taken, polling| {
            if self.fill_taken(taken, polling, into) {
                return Ok(());
            }
            let fold = &mut |offset: usize, chunks: &dyn Chunks| fill(into, offset, chunks);
            self.fold_taken((taken, polling), from, tag, operation, len_bytes, fold)
        })
    }

    fn abort(&self, cause: AbortCause) {
        self.place.world.abort(cause);
    }

    fn failure(&self) -> Option<AbortCause> {
        self.place.world.failure().cloned()
    }

    fn timeouts(&self) -> Timeouts {
        self.place.world.timeouts()
    }

    fn end_first_step(&self) {
        self.place.world.end_first_step();
    }
}

impl Drop for ThreadTransport {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.abort(AbortCause { rank: self.rank, description: "its thread panicked".to_owned() });
        }
        self.place.world.leave(self.place.lane, self.rank);
    }
}
