//! The ranks of a world that live in other processes, as the threads of this one see them.

use super::inbox::{Envelope, Inbox, Interrupted, Liveness, Payload};
use super::shared_memory::Ticket;
use crate::error::AbortCause;
use crate::tag::Tag;
use crate::transport::Chunks;
use device::Operation;
use mesh::Rank;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Bytes of the longest message that a rank reads from the memory of its sender while it polls.
const HELD_BYTES: usize = 1 << 20;

/// How a message ended at its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The receiver has taken it.
    Read,
    /// The receiver left without reading it.
    Lost,
}

/// Where a message goes, and its name there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) source: Rank,
    pub(crate) destination: Rank,
    pub(crate) lane: usize,
    pub(crate) tag: Tag,
    pub(crate) operation: Operation,
}

/// The ranks of other processes.
pub(crate) trait Remote: Send + Sync {
    /// Sends a message and returns at once. A copied payload goes with its announcement where it is small.
    fn post(&self, address: Address, payload: Payload);

    /// Takes back what the receivers of `ticket` have not asked for; returns the first rank that had not read all.
    /// Nobody begins to read it after this.
    fn take_back(&self, ticket: &Arc<Ticket>) -> Option<Rank>;

    /// Folds messages of which at least one is announced, piece by piece.
    fn fold_pieces(
        &self,
        pieces: &PieceWise<'_>,
        polling: &mut Polling<'_>,
        fold: &mut dyn FnMut(usize, &dyn Chunks),
    ) -> Result<(), Interrupted>;

    /// Fills `into` with a message in memory that this process may read; false if it may not, or not any more.
    fn read(&self, announced: &Announced, into: &mut [u8]) -> bool;

    /// Takes polling over from the thread that waits for sockets; none while another rank has it.
    fn poller(&self) -> Option<Box<dyn Poll + '_>>;

    /// Ends the present wait of the rank that polls, unless that rank itself calls this.
    fn poke(&self);

    /// Tells process `process` that its message number `message` is not needed any more.
    fn finish(&self, process: usize, message: u64, ending: Ending);

    /// Tells process `process` that `bytes` of the memory for its small messages are free again.
    fn give_credit(&self, process: usize, bytes: usize);

    /// Tells all processes that `rank` has left `lane`.
    fn leave(&self, lane: usize, rank: Rank);

    /// Tells all processes that the world has failed.
    fn abort(&self, cause: &AbortCause);

    /// Ends the part of this process: waits until its messages are read, or the deadline passes, or `has_failed`.
    fn close(&self, wait: Duration, has_failed: &dyn Fn() -> bool);
}

/// The role of waiting for the sockets of a process. Dropping it gives the role back.
pub(crate) trait Poll {
    /// Waits for bytes, at most for `wait`, and handles them.
    fn poll(&mut self, wait: Duration);
}

/// Waiting for bytes of other processes in the thread of the rank that needs them.
///
/// A thread of each process waits for its sockets. While a rank waits it takes that over, so that bytes wake the rank
/// and not first that thread: half of the switches between threads. Dropping a [`Polling`] gives it back.
pub(crate) struct Polling<'a> {
    /// None where all ranks live in this process.
    remote: Option<&'a Arc<dyn Remote>>,
    held: Option<Box<dyn Poll + 'a>>,
}

impl<'a> Polling<'a> {
    /// Nothing is taken over before the first wait.
    pub(crate) fn new(remote: Option<&'a Arc<dyn Remote>>) -> Polling<'a> {
        Polling { remote, held: None }
    }

    /// Takes polling over, unless it is already; returns who wakes this thread then, or none if another rank polls.
    pub(super) fn take(&mut self) -> Option<Arc<dyn Remote>> {
        let remote = self.remote?;
        if self.held.is_none() {
            self.held = remote.poller();
        }
        self.held.is_some().then(|| Arc::clone(remote))
    }

    /// Waits for bytes, at most for `wait`, and handles them. Without the role it returns at once.
    pub(super) fn poll(&mut self, wait: Duration) {
        if let Some(held) = &mut self.held {
            held.poll(wait);
        }
    }

    /// Gives polling back for a receive that reads long messages from the memory of their senders: other ranks of the
    /// process would wait for that long.
    pub(crate) fn release_for(&mut self, len_bytes: usize) {
        if len_bytes > HELD_BYTES {
            self.release();
        }
    }

    /// Gives polling back.
    pub(crate) fn release(&mut self) {
        self.held = None;
    }
}

/// The messages of one receive, some of which are in other processes.
pub(crate) struct PieceWise<'a> {
    /// The messages, by sender.
    pub(crate) taken: &'a [Envelope],
    /// The senders.
    pub(crate) from: &'a [Rank],
    /// The length of each.
    pub(crate) len_bytes: usize,
    /// Where the receiver waits.
    pub(crate) inbox: &'a Arc<Inbox>,
    /// How long it waits for all pieces together.
    pub(crate) wait: Duration,
    /// Whether waiting still makes sense.
    pub(crate) world: &'a dyn Liveness,
}

/// The name of a message of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessageName {
    /// The process that has it.
    pub(crate) process: usize,
    /// Its number there.
    pub(crate) number: u64,
    /// Its length.
    pub(crate) len_bytes: usize,
    /// The address of its bytes in the memory of that process.
    pub(crate) at: u64,
    /// Messages that the process had taken back before it announced this one.
    pub(crate) withdrawn: u64,
}

/// A message of another process, of which only the name has come. Dropping it ends the message.
pub(crate) struct Announced {
    remote: Arc<dyn Remote>,
    name: MessageName,
    is_lost: AtomicBool,
}

impl Announced {
    /// The message of `name`.
    pub(crate) fn new(remote: Arc<dyn Remote>, name: MessageName) -> Announced {
        Announced { remote, name, is_lost: AtomicBool::new(false) }
    }

    pub(crate) fn name(&self) -> &MessageName {
        &self.name
    }

    pub(crate) fn process(&self) -> usize {
        self.name.process
    }

    pub(crate) fn message(&self) -> u64 {
        self.name.number
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.name.len_bytes
    }

    /// Notes that the message is about to be dropped unread.
    pub(crate) fn lose(&self) {
        self.is_lost.store(true, Ordering::Relaxed);
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        let ending = if self.is_lost.load(Ordering::Relaxed) { Ending::Lost } else { Ending::Read };
        self.remote.finish(self.name.process, self.name.number, ending);
    }
}

/// Memory of this process that a small message of another one occupies, until it is dropped.
pub(crate) struct Credit {
    remote: Arc<dyn Remote>,
    process: usize,
    bytes: usize,
}

impl Credit {
    /// `bytes` that process `process` has used.
    pub(crate) fn new(remote: Arc<dyn Remote>, process: usize, bytes: usize) -> Credit {
        Credit { remote, process, bytes }
    }
}

impl Drop for Credit {
    fn drop(&mut self) {
        self.remote.give_credit(self.process, self.bytes);
    }
}
