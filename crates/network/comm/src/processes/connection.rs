//! One connection to another process, as the threads of ranks and the thread of sockets share it.

use super::arrival::{Arrival, UnderWay};
use super::frame::{Announcement, BadFrame, EAGER_LIMIT_BYTES, Frame, HEADER_BYTES, MemoryPlace, Part, Route};
use super::mpi_route::{MpiRoute, Receiving};
use super::outbox::{Body, Flushed, Outbox, Outgoing};
use super::peer_memory::{PeerMemory, Withdrawals};
use super::pieces::{Piece, Window};
use crate::threads::Ticket;
use crate::threads::inbox::Payload;
use crate::threads::remote::{Address, Ending, MessageName};
use mesh::Rank;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use session::Sealer;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use sync::lock;

/// Bytes of small messages that one process may have sent to another and that no rank has read yet. Further ones wait
/// at their sender, like large ones.
pub(super) const CREDIT_BYTES: usize = 128 << 10;
/// Messages that one process may have announced to another and that no rank has read yet.
pub(super) const ANNOUNCED_LIMIT: usize = 1 << 16;

/// Bytes of the receiver's memory that a small message counts for.
pub(super) fn credit_of(len_bytes: usize) -> usize {
    len_bytes + HEADER_BYTES
}

/// Why a connection, and with it the world, fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    #[error("sent {0}")]
    Frame(#[from] BadFrame),
    #[error("sent {0}")]
    Unexpected(&'static str),
    #[error("closed the connection without a goodbye")]
    Closed,
    #[error("is not reachable any more: {0}")]
    Socket(rustix::io::Errno),
}

/// The path on which the pieces of messages travel.
pub(super) enum PiecePath {
    /// After their frames.
    Socket,
    /// Through the peer's memory for pieces: it is on this machine.
    Memory(Window),
    /// Over a library of MPI, without frames.
    Mpi(MpiRoute),
}

pub(super) struct Connection {
    /// The number of the process at the other end.
    pub(super) process: usize,
    socket: OwnedFd,
    piece_path: PiecePath,
    outbox: Mutex<Outbox>,
    outgoing: Mutex<OutgoingMessages>,
    /// The messages that are being received, by number.
    incoming: Mutex<HashMap<u64, Incoming>>,
    /// Messages that the peer took back after a rank had taken them from its inbox, and before that rank expected their
    /// pieces. Locked after `incoming`.
    withdrawn: Mutex<HashSet<u64>>,
    /// Bytes of small messages of the peer that are read, and of which it does not know yet.
    unreported: AtomicUsize,
    /// Bytes of small messages of the peer that this process holds.
    held: AtomicUsize,
    /// Announced messages of the peer that are not finished.
    announced: AtomicUsize,
    /// Messages that this process has taken back.
    withdrawals: Box<Withdrawals>,
    /// Messages of which the peer has reported that it took them back.
    withdrawn_by_peer: AtomicU64,
    /// The memory of the peer, where this process may read it.
    peer_memory: OnceLock<PeerMemory>,
    has_said_goodbye: AtomicBool,
    has_seen_goodbye: AtomicBool,
    is_closed: AtomicBool,
}

#[derive(Default)]
struct OutgoingMessages {
    next: u64,
    open: HashMap<u64, Arc<Outgoing>>,
}

impl OutgoingMessages {
    fn insert(&mut self, address: Address, payload: Payload) -> u64 {
        let number = self.next;
        self.next += 1;
        self.open.insert(number, Arc::new(Outgoing { number, address, payload }));
        number
    }
}

/// A message that is being received in pieces.
struct Incoming {
    arrival: Arc<Arrival>,
    sender: usize,
    /// Set when its receiver does not wait for it any more and pieces are under way: their places may be written still.
    abandoned: Option<Ending>,
}

impl Connection {
    /// A connection whose frames `sealer` seals.
    pub(super) fn new(process: usize, socket: OwnedFd, piece_path: PiecePath, sealer: Sealer) -> Connection {
        Connection {
            process,
            socket,
            piece_path,
            outbox: Mutex::new(Outbox::new(sealer, CREDIT_BYTES)),
            outgoing: Mutex::default(),
            incoming: Mutex::default(),
            withdrawn: Mutex::default(),
            unreported: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            announced: AtomicUsize::new(0),
            withdrawals: Withdrawals::new(),
            withdrawn_by_peer: AtomicU64::new(0),
            peer_memory: OnceLock::new(),
            has_said_goodbye: AtomicBool::new(false),
            has_seen_goodbye: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
        }
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// How pieces with frames travel on this connection.
    pub(super) fn route(&self) -> Option<Route> {
        match self.piece_path {
            PiecePath::Socket => Some(Route::Inline),
            PiecePath::Memory(_) => Some(Route::Shared),
            PiecePath::Mpi(_) => None,
        }
    }

    /// Writes what waits except for pieces. An error shows when the socket is read.
    pub(super) fn flush(&self) {
        let mut outbox = lock(&self.outbox);
        if outbox.flush(self.socket(), 0).is_err() {
            outbox.close();
        }
    }

    /// Writes what waits and at most one piece. For the thread that polls, which calls it again for further pieces.
    pub(super) fn flush_piece(&self) -> Flushed {
        let mut outbox = lock(&self.outbox);
        outbox.flush(self.socket(), 1).unwrap_or_else(|_| {
            outbox.close();
            Flushed::Done
        })
    }

    /// Posts a frame and writes what the socket takes.
    pub(super) fn send(&self, frame: Frame, body: Body) {
        let mut outbox = lock(&self.outbox);
        outbox.post(frame, body);
        if outbox.flush(self.socket(), 0).is_err() {
            outbox.close();
        }
    }

    /// Sends a small message whole if the peer has room, and announces any other.
    pub(super) fn post(&self, address: Address, payload: Payload) {
        // The order of the two locks is that of `grant`.
        let mut outbox = lock(&self.outbox);
        match payload {
            Payload::Copied(bytes) if bytes.len() <= EAGER_LIMIT_BYTES && outbox.use_credit(credit_of(bytes.len())) => {
                outbox.post(Frame::Eager(address), Body::Copied(bytes));
            }
            payload @ (Payload::Copied(_)
            | Payload::BorrowedBytes(_)
            | Payload::Loan(..)
            | Payload::Arrived { .. }
            | Payload::Announced(_)) => {
                let (len, at) = (payload.len_bytes() as u64, self.address_of(&payload));
                let message = lock(&self.outgoing).insert(address, payload);
                outbox.post(Frame::Announce(address, Announcement { message, len, at }), Body::Empty);
            }
        }
        if outbox.flush(self.socket(), 0).is_err() {
            outbox.close();
        }
        drop(outbox);
        if self.has_said_goodbye() || self.is_closed.load(Ordering::Acquire) {
            self.lose_outgoing();
        }
    }

    /// The address of a message, for a peer that reads the memory of this process.
    fn address_of(&self, payload: &Payload) -> u64 {
        match self.piece_path {
            PiecePath::Memory(_) => payload.bytes().as_ptr() as u64,
            PiecePath::Socket | PiecePath::Mpi(_) => 0,
        }
    }

    /// Tells a peer of this machine what it needs to read the memory of this process.
    pub(super) fn offer_memory(&self) {
        if let PiecePath::Memory(_) = self.piece_path {
            self.send(Frame::Memory(self.withdrawals.place()), Body::Empty);
        }
    }

    /// Keeps the way to the memory of the peer, if this process may read it.
    pub(super) fn learn_memory(&self, place: MemoryPlace) -> Result<(), Fault> {
        match self.piece_path {
            PiecePath::Memory(_) => {}
            PiecePath::Socket | PiecePath::Mpi(_) => {
                return Err(Fault::Unexpected("an address of its memory over a network"));
            }
        }
        if let Some(memory) = PeerMemory::of(place) {
            let _ = self.peer_memory.set(memory);
        }
        Ok(())
    }

    /// Whether this process may read the memory of the peer.
    pub(super) fn reads_peer(&self) -> bool {
        self.peer_memory.get().is_some()
    }

    /// Fills `bytes` from `offset` of the message of `name` in the memory of the peer. False if this process may not
    /// read there, or if the peer has taken a message back meanwhile: the bytes may be others then.
    pub(super) fn read_peer(&self, name: &MessageName, offset: usize, bytes: &mut [u8]) -> bool {
        let Some(memory) = self.peer_memory.get() else { return false };
        memory.read(name.at.wrapping_add(offset as u64), bytes) == Some(name.withdrawn)
    }

    /// Messages of which the peer has reported that it took them back.
    pub(super) fn withdrawn_by_peer(&self) -> u64 {
        self.withdrawn_by_peer.load(Ordering::Relaxed)
    }

    /// Takes the messages of `ticket` back; returns the first rank that needs one still.
    pub(super) fn take_back(&self, ticket: &Arc<Ticket>) -> Option<Rank> {
        let mut outgoing = lock(&self.outgoing);
        let numbers = outgoing.open.values().filter(|message| message.payload.is_of(ticket)).map(|m| m.number);
        let numbers: Vec<u64> = numbers.collect();
        let taken: Vec<Arc<Outgoing>> = numbers.iter().filter_map(|number| outgoing.open.remove(number)).collect();
        drop(outgoing);
        self.withdrawals.add(taken.len());
        let mut outbox = lock(&self.outbox);
        for message in &taken {
            outbox.release(message.number);
            outbox.post(Frame::Withdraw(message.address, message.number), Body::Empty);
        }
        if outbox.flush(self.socket(), 0).is_err() {
            outbox.close();
        }
        drop(outbox);
        taken.iter().map(|message| message.destination()).min()
    }

    /// Whether all messages to the peer are read.
    pub(super) fn is_idle(&self) -> bool {
        lock(&self.outgoing).open.is_empty()
    }

    /// The message that the peer means, or none if it was taken back.
    fn outgoing(&self, number: u64) -> Result<Option<Arc<Outgoing>>, Fault> {
        let outgoing = lock(&self.outgoing);
        if number >= outgoing.next {
            return Err(Fault::Unexpected("the number of a message that was never sent"));
        }
        Ok(outgoing.open.get(&number).map(Arc::clone))
    }

    /// Sends the part that the peer has asked for.
    pub(super) fn grant(&self, part: Part) -> Result<(), Fault> {
        const NO_PLACE: Fault = Fault::Unexpected("a request for a place outside of its memory");
        let Some(message) = self.outgoing(part.message)? else {
            return match &self.piece_path {
                PiecePath::Mpi(route) if !route.send_nothing(part.slot) => Err(NO_PLACE),
                PiecePath::Mpi(_) | PiecePath::Socket | PiecePath::Memory(_) => Ok(()),
            };
        };
        let bytes = message.payload.bytes();
        let start = usize::try_from(part.offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(part.len as usize);
        let Some(bytes) = bytes.get(start..end) else {
            return Err(Fault::Unexpected("a request for bytes outside of a message"));
        };
        // A message that is taken back meanwhile is not read after this lock: its owner needs the lock for that.
        let mut outbox = lock(&self.outbox);
        let is_open = lock(&self.outgoing).open.contains_key(&part.message);
        match &self.piece_path {
            PiecePath::Mpi(route) => {
                drop(outbox);
                let is_place = if is_open {
                    route.send(part.slot, Arc::clone(&message), start..end)
                } else {
                    route.send_nothing(part.slot)
                };
                return if is_place { Ok(()) } else { Err(NO_PLACE) };
            }
            PiecePath::Memory(_) | PiecePath::Socket if !is_open => return Ok(()),
            PiecePath::Memory(window) => {
                if !window.write(part.slot, bytes) {
                    return Err(NO_PLACE);
                }
                outbox.post(Frame::Piece(part, Route::Shared), Body::Empty);
                // The peer folds this piece while the next is written.
                if outbox.flush(self.socket(), 0).is_err() {
                    outbox.close();
                }
            }
            PiecePath::Socket => outbox.post_piece(Arc::clone(&message), part),
        }
        Ok(())
    }

    /// Forgets a message that the peer needs no more.
    pub(super) fn finished(&self, number: u64, ending: Ending) -> Result<(), Fault> {
        let Some(message) = self.outgoing(number)? else { return Ok(()) };
        match ending {
            Ending::Read => {}
            Ending::Lost => message.payload.lose(),
        }
        lock(&self.outgoing).open.remove(&number);
        Ok(())
    }

    /// Notes that the peer has room again.
    pub(super) fn add_credit(&self, bytes: u32) -> Result<(), Fault> {
        if lock(&self.outbox).add_credit(bytes as usize) > CREDIT_BYTES {
            return Err(Fault::Unexpected("more room for small messages than it had"));
        }
        Ok(())
    }

    /// Counts a small message of the peer.
    pub(super) fn hold(&self, len_bytes: usize) -> Result<(), Fault> {
        let held = self.held.fetch_add(credit_of(len_bytes), Ordering::Relaxed) + credit_of(len_bytes);
        if held > CREDIT_BYTES { Err(Fault::Unexpected("more small messages than it had room for")) } else { Ok(()) }
    }

    /// Notes that `bytes` of small messages are read, and reports it to the peer from time to time.
    pub(super) fn give_credit(&self, bytes: usize) {
        // The peer learns of it later, so it never counts more than there is.
        self.held.fetch_sub(bytes, Ordering::Relaxed);
        let unreported = self.unreported.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if unreported >= CREDIT_BYTES / 4 {
            let report = self.unreported.swap(0, Ordering::Relaxed);
            if report > 0 {
                self.send(Frame::Credit(u32::try_from(report).unwrap_or(u32::MAX)), Body::Empty);
            }
        }
    }

    /// Counts an announced message of the peer.
    pub(super) fn count_announced(&self) -> Result<(), Fault> {
        if self.announced.fetch_add(1, Ordering::Relaxed) >= ANNOUNCED_LIMIT {
            return Err(Fault::Unexpected("more messages than may be unread"));
        }
        Ok(())
    }

    /// Tells the peer that its message is needed no more, as soon as no piece of it is under way.
    pub(super) fn finish(&self, number: u64, ending: Ending) {
        let mut incoming = lock(&self.incoming);
        if let Some(entry) = incoming.get_mut(&number)
            && entry.arrival.under_way(entry.sender) == UnderWay::Some
        {
            entry.abandoned = Some(ending);
            return;
        }
        let ended = incoming.remove(&number);
        lock(&self.withdrawn).remove(&number);
        drop(incoming);
        drop(ended);
        self.send_finish(number, ending);
    }

    fn send_finish(&self, number: u64, ending: Ending) {
        self.announced.fetch_sub(1, Ordering::Relaxed);
        self.send(Frame::Finish(number, ending), Body::Empty);
    }

    /// Expects pieces of message `number` for `sender` of `arrival`.
    pub(super) fn expect(&self, number: u64, arrival: &Arc<Arrival>, sender: usize) {
        let incoming = Incoming { arrival: Arc::clone(arrival), sender, abandoned: None };
        let mut all = lock(&self.incoming);
        all.insert(number, incoming);
        let is_withdrawn = lock(&self.withdrawn).remove(&number);
        drop(all);
        if is_withdrawn {
            drop(arrival.withdraw(sender));
        }
        if self.is_closed.load(Ordering::Acquire) {
            self.lose(arrival, sender);
        }
    }

    /// Ends what comes from a closed connection. A peer of this machine may still write the places that it was granted,
    /// so nobody else gets them.
    fn lose(&self, arrival: &Arrival, sender: usize) {
        let granted = arrival.withdraw(sender);
        match self.piece_path {
            PiecePath::Socket | PiecePath::Mpi(_) => drop(granted),
            PiecePath::Memory(_) => granted.into_iter().for_each(std::mem::forget),
        }
    }

    /// Asks for a part, for which `piece` is the place. [`Connection::flush`] sends the request.
    pub(super) fn ask(self: &Arc<Connection>, arrival: &Arc<Arrival>, sender: usize, piece: Piece, part: Part) {
        let may_ask = match &self.piece_path {
            PiecePath::Socket | PiecePath::Memory(_) => arrival.grant(sender, piece, part),
            PiecePath::Mpi(route) if arrival.grant_over_mpi(sender, part) => {
                let (connection, arrival) = (Arc::clone(self), Arc::clone(arrival));
                route.receive(Receiving { connection, arrival, sender, part, piece });
                true
            }
            PiecePath::Mpi(_) => false,
        };
        if may_ask {
            lock(&self.outbox).post(Frame::Grant(part), Body::Empty);
        }
    }

    /// The receive that the part belongs to, and the place for it.
    pub(super) fn begin_piece(&self, part: Part) -> Result<(Arc<Arrival>, usize, Piece), Fault> {
        let incoming = lock(&self.incoming);
        let Some(entry) = incoming.get(&part.message) else {
            return Err(Fault::Unexpected("a piece of a message that was not asked for"));
        };
        let piece = entry.arrival.begin(entry.sender, part)?;
        Ok((Arc::clone(&entry.arrival), entry.sender, piece))
    }

    /// Notes that a part has come over MPI.
    pub(super) fn fill(&self, part: Part, arrival: &Arrival, sender: usize, piece: Piece) {
        if arrival.fill(sender, part, piece) == UnderWay::None {
            self.end_abandoned(part.message);
        }
    }

    /// Notes that a part is in its place.
    pub(super) fn complete_piece(&self, part: Part, arrival: &Arrival, sender: usize, piece: Piece) {
        let under_way = arrival.complete(sender, piece);
        if under_way == UnderWay::None {
            self.end_abandoned(part.message);
        }
    }

    /// Ends a message that nobody waits for, after its last piece.
    fn end_abandoned(&self, number: u64) {
        let mut incoming = lock(&self.incoming);
        let Some(ending) = incoming.get(&number).and_then(|entry| entry.abandoned) else { return };
        let ended = incoming.remove(&number);
        drop(incoming);
        drop(ended);
        self.send_finish(number, ending);
    }

    /// Notes that the peer has taken a message back that is being received, or will be.
    pub(super) fn withdraw(&self, number: u64) -> Result<(), Fault> {
        self.withdrawn_by_peer.fetch_add(1, Ordering::Relaxed);
        let incoming = lock(&self.incoming);
        let Some(entry) = incoming.get(&number) else {
            let mut withdrawn = lock(&self.withdrawn);
            withdrawn.insert(number);
            let may_be = withdrawn.len() <= ANNOUNCED_LIMIT;
            return if may_be { Ok(()) } else { Err(Fault::Unexpected("more messages taken back than may be unread")) };
        };
        let (arrival, sender) = (Arc::clone(&entry.arrival), entry.sender);
        drop(incoming);
        drop(arrival.withdraw(sender));
        self.end_abandoned(number);
        Ok(())
    }

    /// Says that all ranks of this process have left, and that nothing more is to be sent by it.
    pub(super) fn say_goodbye(&self) {
        self.send(Frame::Goodbye, Body::Empty);
    }

    /// Notes that all ranks of the peer have left, and answers.
    pub(super) fn heard_goodbye(&self) {
        self.has_said_goodbye.store(true, Ordering::Release);
        let mut outbox = lock(&self.outbox);
        outbox.post(Frame::GoodbyeSeen, Body::Empty);
        outbox.end();
        if outbox.flush(self.socket(), 0).is_err() {
            outbox.close();
        }
        drop(outbox);
        self.lose_outgoing();
    }

    /// Notes that the peer has answered the goodbye.
    pub(super) fn goodbye_was_seen(&self) {
        self.has_seen_goodbye.store(true, Ordering::Release);
    }

    /// Whether the peer has said that all its ranks have left.
    pub(super) fn has_said_goodbye(&self) -> bool {
        self.has_said_goodbye.load(Ordering::Acquire)
    }

    /// Whether the peer needs nothing more from this process, and knows that it ends.
    pub(super) fn is_over(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
            || self.has_seen_goodbye.load(Ordering::Acquire)
            || self.has_said_goodbye() && lock(&self.outbox).is_empty()
    }

    /// Ends this side's half of the connection once everything that waits is written.
    pub(super) fn end_output(&self) {
        let mut outbox = lock(&self.outbox);
        if outbox.is_empty() {
            outbox.close();
            let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write);
        }
    }

    /// Notes that the connection is closed: nothing more comes, and nothing that was sent is read.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        lock(&self.outbox).close();
        // The peer learns of it now, not when the last end of this process is gone.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        self.lose_outgoing();
        let incoming: Vec<Incoming> = lock(&self.incoming).drain().map(|(_, entry)| entry).collect();
        incoming.iter().for_each(|entry| self.lose(&entry.arrival, entry.sender));
    }

    fn lose_outgoing(&self) {
        let lost = std::mem::take(&mut lock(&self.outgoing).open);
        self.withdrawals.add_all();
        for message in lost.values() {
            lock(&self.outbox).release(message.number);
            message.payload.lose();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn nothing_is_read_of_a_message_that_its_sender_may_have_taken_back() {
        let pieces = super::super::pieces::Pieces::new(1).unwrap();
        let window = Window::map(&pieces.file().try_clone_to_owned().unwrap()).unwrap();
        let (near, _far) = UnixStream::pair().unwrap();
        let (session, _) = super::super::violations::sessions();
        let connection = Connection::new(1, near.into(), PiecePath::Memory(window), session.sealer);
        let (source, mut target) = ([5u8; 300], [0u8; 100]);
        let at = source.as_ptr() as u64;
        let name = MessageName { process: 1, number: 0, len_bytes: 300, at, withdrawn: 0 };
        assert!(!connection.read_peer(&name, 0, &mut target), "the peer has not said where its memory is");
        // The connection is its own peer.
        connection.learn_memory(connection.withdrawals.place()).unwrap();
        assert!(connection.reads_peer() && connection.read_peer(&name, 100, &mut target));
        assert_eq!(target, [5; 100]);
        connection.withdrawals.add(1);
        assert!(!connection.read_peer(&name, 0, &mut target), "it may be this message");
        assert!(connection.read_peer(&MessageName { withdrawn: 1, ..name }, 0, &mut target), "it was an earlier one");
    }
}
