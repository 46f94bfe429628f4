//! The other processes of a world, as the ranks of this one reach them.

use super::arrival::Arrival;
use super::connection::Connection;
use super::frame::{Frame, PIECE_BYTES, Part, TEXT_LIMIT_BYTES};
use super::outbox::Body;
use super::peer_memory::permit_siblings;
use super::pieces::{Piece, Pieces};
use super::process_map::ProcessMap;
use super::role::Role;
use crate::error::AbortCause;
use crate::threads::Ticket;
use crate::threads::inbox::{Interrupted, Payload};
use crate::threads::remote::{Address, Announced, Ending, PieceWise, Poll, Polling, Remote};
use crate::transport::Chunks;
use mesh::Rank;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sync::{lock, wait_timeout};

/// Pieces of one message that are under way at the same time.
const ROWS_AHEAD: usize = 16;
/// How long a process that ends waits for others to notice.
const GOODBYE_DEADLINE: Duration = Duration::from_secs(5);

/// The same in a world that has failed: its end is on its way, and others may never answer.
const FAREWELL_DEADLINE: Duration = Duration::from_millis(500);

/// How often a process that ends looks whether the world has failed meanwhile.
const LEAVING_POLL: Duration = Duration::from_millis(50);

/// The connections of one process.
pub(super) struct Network {
    process_map: ProcessMap,
    /// By process; none for this one.
    connections: Vec<Option<Arc<Connection>>>,
    pieces: Arc<Pieces>,
    /// Stopped when the world fails.
    mpi: Option<Arc<mpi::Endpoint>>,
    /// The role of waiting for the sockets, and handling what comes.
    pub(super) role: Role,
    is_leaving: AtomicBool,
    is_over: AtomicBool,
    /// Signalled by the thread of the sockets while this process leaves.
    progress: Mutex<u64>,
    progressed: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Network {
    pub(super) fn new(
        process_map: ProcessMap,
        connections: Vec<Option<Arc<Connection>>>,
        pieces: Arc<Pieces>,
        mpi: Option<Arc<mpi::Endpoint>>,
        role: Role,
    ) -> Arc<Network> {
        Arc::new(Network {
            process_map,
            connections,
            pieces,
            mpi,
            role,
            is_leaving: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            progress: Mutex::default(),
            progressed: Condvar::new(),
            thread: Mutex::default(),
        })
    }

    pub(super) fn process_map(&self) -> &ProcessMap {
        &self.process_map
    }

    /// The connection to `process`, if there is one.
    pub(super) fn connection(&self, process: usize) -> Option<&Arc<Connection>> {
        self.connections.get(process)?.as_ref()
    }

    fn connections(&self) -> impl Iterator<Item = &Arc<Connection>> {
        self.connections.iter().flatten()
    }

    /// The connection to the process of `rank`.
    fn connection_of(&self, rank: Rank) -> Option<&Arc<Connection>> {
        self.connection(self.process_map.process_of(rank)?)
    }

    /// Keeps the thread of the sockets, so that the last end can wait for it.
    pub(super) fn keep_thread(&self, thread: JoinHandle<()>) {
        *lock(&self.thread) = Some(thread);
    }

    /// Lets the other processes of this machine read the memory of this one.
    pub(super) fn offer_memory(&self) {
        permit_siblings();
        self.connections().for_each(|connection| connection.offer_memory());
    }

    /// Whether all ranks of this process have left.
    pub(super) fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Acquire)
    }

    /// Whether the thread of the sockets is to end.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Notes that something has come, for the end that leaves last.
    pub(super) fn note_progress(&self) {
        *lock(&self.progress) += 1;
        self.progressed.notify_all();
    }

    /// Waits until `is_done`, at most until `deadline`.
    fn wait_until(&self, deadline: Instant, is_done: &dyn Fn() -> bool) {
        let mut progress = lock(&self.progress);
        while !is_done() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            progress = wait_timeout(&self.progressed, progress, left.min(LEAVING_POLL));
        }
    }

    /// Asks every sender for the parts that begin at `offset`, for which `places` are the places.
    fn ask(&self, receive: &Receive<'_>, offset: usize, places: Vec<Piece>) {
        let len = receive.len_bytes.saturating_sub(offset).min(PIECE_BYTES);
        for (index, (announced, mut piece)) in receive.messages.iter().zip(places).enumerate() {
            let Some(connection) = self.connection(announced.process()) else { continue };
            if connection.read_peer(announced.name(), offset, piece.bytes_mut(len)) {
                receive.arrival.complete(index, piece);
                continue;
            }
            let part = Part {
                message: announced.message(),
                offset: offset as u64,
                len: u32::try_from(len).unwrap_or(u32::MAX),
                slot: piece.slot(),
            };
            connection.ask(&receive.arrival, index, piece, part);
        }
    }

    fn flush(&self, receive: &Receive<'_>) {
        for announced in &receive.messages {
            if let Some(connection) = self.connection(announced.process()) {
                connection.flush();
            }
        }
    }

    /// Asks for as many rows as there is room for; at least one if none is under way.
    fn ask_ahead(
        &self,
        receive: &Receive<'_>,
        asked: &mut usize,
        folded: usize,
        (wait, polling): (Duration, &mut Polling<'_>),
    ) -> Result<(), Interrupted> {
        let (rows, count) = (receive.len_bytes.div_ceil(PIECE_BYTES), receive.messages.len());
        if *asked - folded > receive.rows_ahead / 2 {
            return Ok(());
        }
        let before = *asked;
        while *asked < rows && *asked - folded < receive.rows_ahead {
            let places = if *asked == folded {
                self.pieces.take(count, receive.pieces.inbox, (wait, &mut *polling), receive.pieces.world)?
            } else {
                match self.pieces.try_take(count) {
                    Some(places) => places,
                    None => break,
                }
            };
            self.ask(receive, *asked * PIECE_BYTES, places);
            *asked += 1;
        }
        if *asked > before {
            self.flush(receive);
        }
        Ok(())
    }
}

/// A receive of which some messages come in pieces.
struct Receive<'a> {
    pieces: &'a PieceWise<'a>,
    len_bytes: usize,
    /// The messages that come in pieces.
    messages: Vec<&'a Announced>,
    /// Rows that are asked for at the same time.
    rows_ahead: usize,
    arrival: Arc<Arrival>,
}

/// One row: a piece of each message that comes in pieces, and the same range of the others.
struct Row<'a> {
    pieces: &'a PieceWise<'a>,
    offset: usize,
    len: usize,
    arrived: Vec<Piece>,
    /// For each sender the index in `arrived`, if its message comes in pieces.
    place: &'a [Option<usize>],
}

impl Chunks for Row<'_> {
    fn chunk(&self, index: usize) -> &[u8] {
        match self.place[index] {
            Some(place) => self.arrived[place].bytes(self.len),
            None => &self.pieces.taken[index].payload.bytes()[self.offset..self.offset + self.len],
        }
    }
}

impl Remote for Network {
    fn post(&self, address: Address, payload: Payload) {
        if let Some(connection) = self.connection_of(address.destination) {
            connection.post(address, payload);
        }
    }

    fn take_back(&self, ticket: &Arc<Ticket>) -> Option<Rank> {
        self.connections().filter_map(|connection| connection.take_back(ticket)).min()
    }

    fn fold_pieces(
        &self,
        pieces: &PieceWise<'_>,
        polling: &mut Polling<'_>,
        fold: &mut dyn FnMut(usize, &dyn Chunks),
    ) -> Result<(), Interrupted> {
        let messages: Vec<&Announced> = pieces.taken.iter().filter_map(|e| e.payload.announced()).collect();
        let mut next = 0..messages.len();
        let place: Vec<Option<usize>> =
            pieces.taken.iter().map(|e| e.payload.announced().and_then(|_| next.next())).collect();
        let arrival = Arrival::new(pieces.inbox, messages.len());
        let is_read = |announced: &&Announced| self.connection(announced.process()).is_some_and(|c| c.reads_peer());
        // A row that is read is there at once, and is folded while it is in the cache.
        let rows_ahead = if messages.iter().all(is_read) { 1 } else { ROWS_AHEAD };
        if rows_ahead == 1 {
            polling.release_for(pieces.len_bytes);
        }
        let receive = Receive { pieces, len_bytes: pieces.len_bytes, messages, rows_ahead, arrival };
        for (index, announced) in receive.messages.iter().enumerate() {
            if let Some(connection) = self.connection(announced.process()) {
                connection.expect(announced.message(), &receive.arrival, index);
            }
        }
        let started = Instant::now();
        let sender = |index: usize| {
            place.iter().position(|place| *place == Some(index)).and_then(|at| pieces.from.get(at)).copied()
        };
        let late = |index: usize| Interrupted::Deadline(sender(index), started.elapsed());
        // A sender that took its message back and left reports nothing more.
        let gone =
            || receive.arrival.withdrawn().into_iter().filter_map(sender).find(|rank| pieces.world.has_left(*rank));
        let mut asked = 0;
        for folded in 0..pieces.len_bytes.div_ceil(PIECE_BYTES) {
            let left = pieces.wait.saturating_sub(started.elapsed());
            self.ask_ahead(&receive, &mut asked, folded, (left, &mut *polling))?;
            let is_over = || receive.arrival.is_ready() || gone().is_some();
            let waited = pieces.inbox.wait_for((left, &mut *polling), pieces.world, is_over);
            waited.map_err(|interrupted| match interrupted {
                Interrupted::Deadline(..) => late(receive.arrival.first_missing().unwrap_or(0)),
                Interrupted::Failed | Interrupted::Left(_) => interrupted,
            })?;
            if let Some(rank) = gone() {
                return Err(Interrupted::Left(rank));
            }
            let arrived = receive.arrival.take_row();
            let offset = folded * PIECE_BYTES;
            let len = PIECE_BYTES.min(pieces.len_bytes - offset);
            fold(offset, &Row { pieces, offset, len, arrived, place: &place });
        }
        Ok(())
    }

    fn read(&self, announced: &Announced, into: &mut [u8]) -> bool {
        let connection = self.connection(announced.process());
        connection.is_some_and(|connection| connection.read_peer(announced.name(), 0, into))
    }

    fn poller(&self) -> Option<Box<dyn Poll + '_>> {
        self.role.take_for_rank().map(|held| Box::new(held) as Box<dyn Poll>)
    }

    fn poke(&self) {
        self.role.poke();
    }

    fn finish(&self, process: usize, message: u64, ending: Ending) {
        if let Some(connection) = self.connection(process) {
            connection.finish(message, ending);
        }
    }

    fn give_credit(&self, process: usize, bytes: usize) {
        if let Some(connection) = self.connection(process) {
            connection.give_credit(bytes);
        }
    }

    fn leave(&self, lane: usize, rank: Rank) {
        let lane = u32::try_from(lane).unwrap_or(u32::MAX);
        self.connections().for_each(|connection| connection.send(Frame::Leave(rank, lane), Body::Empty));
    }

    fn abort(&self, cause: &AbortCause) {
        let description = shortened(&cause.description);
        for connection in self.connections() {
            connection.send(Frame::Abort(cause.rank), Body::Text(description.to_owned()));
        }
        // Ranks wait for the memory that they have lent, and a peer that is gone never takes it.
        if let Some(mpi) = &self.mpi {
            mpi.stop();
        }
    }

    fn close(&self, wait: Duration, has_failed: &dyn Fn() -> bool) {
        let started = Instant::now();
        // The order matters: progress is noted only from now on.
        self.is_leaving.store(true, Ordering::Release);
        let is_read = || self.connections().all(|connection| connection.is_idle());
        self.wait_until(started + wait, &|| has_failed() || is_read());
        self.connections().for_each(|connection| connection.say_goodbye());
        let is_over = || self.connections().all(|connection| connection.is_over());
        self.wait_until(Instant::now() + wait.min(GOODBYE_DEADLINE), &|| has_failed() || is_over());
        self.wait_until(Instant::now() + FAREWELL_DEADLINE, &|| !has_failed() || is_over());
        self.is_over.store(true, Ordering::Release);
        self.role.wake();
        let thread = lock(&self.thread).take();
        // The thread ends by itself where it is the one that drops the last end.
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
    }
}

/// As much of a description as a frame takes.
fn shortened(description: &str) -> &str {
    let end = (0..=TEXT_LIMIT_BYTES.min(description.len())).rev().find(|&end| description.is_char_boundary(end));
    &description[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_cut_between_characters() {
        assert_eq!(shortened("short"), "short");
        let long = "é".repeat(TEXT_LIMIT_BYTES);
        assert_eq!(shortened(&long).len(), TEXT_LIMIT_BYTES);
        let odd = format!("a{long}");
        assert_eq!(shortened(&odd).len(), TEXT_LIMIT_BYTES - 1);
    }
}
