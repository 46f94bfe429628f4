//! Moving bytes between the ranks of one world.

use crate::error::{AbortCause, CommError};
use crate::tag::Tag;
use device::Operation;
use mesh::Rank;
use std::sync::Arc;
use std::time::Duration;

/// Memory lent to a send for as long as the send takes; see [`Transport::post_loan`].
pub type Loan = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// The deadlines of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// How long a rank waits for its peers in one operation.
    pub wait: Duration,
    /// How long it waits at least until the first step has ended; no longer than `wait` by default.
    first_step: Duration,
    /// How many times `run.timeout_seconds` that is: ranks of a host may take turns on its cores.
    turns: u32,
}

impl Timeouts {
    /// The deadline of `wait` for ranks that have a core each.
    pub const fn new(wait: Duration) -> Timeouts {
        Timeouts { wait, first_step: Duration::ZERO, turns: 1 }
    }

    /// The same deadlines, of at least `least` until the first step has ended.
    #[must_use]
    pub fn with_first_step(self, least: Duration) -> Timeouts {
        Timeouts { first_step: least, ..self }
    }

    /// The deadlines until the first step has ended.
    #[must_use]
    pub fn in_first_step(self) -> Timeouts {
        Timeouts { wait: self.wait.max(self.first_step), ..self }
    }

    /// The same deadline for a world whose `ranks` share `cores`: where ranks take turns on a core,
    /// each may take that many times longer before it is late.
    pub fn scaled(self, ranks: usize, cores: usize) -> Timeouts {
        let turns = u32::try_from(ranks.div_ceil(cores.max(1)).max(1)).unwrap_or(u32::MAX);
        let [wait, first_step] = [self.wait, self.first_step].map(|deadline| deadline.saturating_mul(turns));
        Timeouts { wait, first_step, turns: self.turns.saturating_mul(turns) }
    }

    /// `run.timeout_seconds`, of which `wait` is a multiple; in the first step the one that would not be longer.
    pub fn setting(self) -> Duration {
        self.wait / self.turns.max(1)
    }
}

/// Bytes on their way to one or more ranks.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The receivers, each once; never the sender.
    pub to: &'a [Rank],
    /// Which message this is; receivers ask for it by this name.
    pub tag: Tag,
    /// The operation that the message belongs to.
    pub operation: Operation,
    /// The content.
    pub bytes: &'a [u8],
}

/// A send that may not have completed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "the lent memory may change only after this send was waited for"]
pub struct SendHandle(pub u64);

/// The same range of the messages of several senders, side by side.
pub trait Chunks {
    /// The bytes from the sender at `index` of the list given to [`Transport::receive`]. All chunks
    /// of one call have the same length. They need not be aligned.
    fn chunk(&self, index: usize) -> &[u8];
}

/// One rank's end of a world of ranks.
///
/// Messages match by sender, receiver and [`Tag`], first in, first out. Sends never block; receives
/// and waits park the thread and end with [`CommError::Deadline`] when the deadline passes and with
/// [`CommError::Aborted`] as soon as any rank aborts. One thread uses a transport at a time.
pub trait Transport: Send + Sync {
    /// The rank of this end.
    fn rank(&self) -> Rank;

    /// The number of ranks in the world.
    fn world_size(&self) -> usize;

    /// Sends a copy of the message; `message.bytes` may change as soon as this returns.
    ///
    /// The transport keeps the copy until every receiver has read it and then reuses its memory.
    /// Meant for messages of at most 16 KiB and whatever cannot be lent.
    ///
    /// # Errors
    /// [`CommError::Aborted`], [`CommError::PeerLeft`].
    fn post_copy(&self, message: Message<'_>) -> Result<(), CommError>;

    /// Sends bytes that the receiver reads in place. They must not change until [`Transport::wait_send`] has returned,
    /// or [`Transport::is_complete`] has returned true, for the handle.
    ///
    /// # Errors
    /// [`CommError::Aborted`], [`CommError::PeerLeft`].
    fn post_loan(&self, to: Rank, tag: Tag, operation: Operation, loan: Loan) -> Result<SendHandle, CommError>;

    /// Whether the receiver has read all of the loan. True too for a send already waited for.
    fn is_complete(&self, send: SendHandle) -> bool;

    /// Waits until the receiver has read all of the loan. Nobody reads it any more when this
    /// returns, whatever it returns: on an error an unread message is taken back.
    ///
    /// # Errors
    /// [`CommError::Aborted`], [`CommError::PeerLeft`], [`CommError::Deadline`].
    fn wait_send(&self, send: SendHandle) -> Result<(), CommError>;

    /// Sends all `messages` without copying, calls `during`, then waits until every receiver has
    /// read them. The borrow checker holds the bytes still; nobody reads them any more when this
    /// returns, whatever it returns.
    ///
    /// # Errors
    /// The errors of `during`; [`CommError::Aborted`], [`CommError::PeerLeft`], [`CommError::Deadline`].
    fn lend<'a>(
        &self,
        messages: &mut dyn Iterator<Item = Message<'a>>,
        during: &mut dyn FnMut() -> Result<(), CommError>,
    ) -> Result<(), CommError>;

    /// Waits for one message of `tag` from each rank of `from` (each once, never this rank), every
    /// one of `len_bytes`, and hands their bytes to `fold` side by side.
    ///
    /// `fold(offset_bytes, chunks)` sees consecutive ranges that together cover the messages once.
    /// Between threads that is one call on the senders' own memory; over a wire it is one call per
    /// staged piece. Pieces start at multiples of 64 bytes. An empty message is not folded.
    ///
    /// # Errors
    /// [`CommError::Aborted`], [`CommError::PeerLeft`], [`CommError::Deadline`], and
    /// [`CommError::Mismatch`] for a message of another length or operation.
    fn receive(
        &self,
        from: &[Rank],
        tag: Tag,
        operation: Operation,
        len_bytes: usize,
        fold: &mut dyn FnMut(usize, &dyn Chunks),
    ) -> Result<(), CommError>;

    /// Receives as [`Transport::receive`] does, where the bytes of each sender replace the slice at its place in
    /// `into`; all have one length.
    ///
    /// # Errors
    /// The errors of [`Transport::receive`]; the slices are unspecified then.
    fn receive_into(
        &self,
        from: &[Rank],
        tag: Tag,
        operation: Operation,
        into: &mut [&mut [u8]],
    ) -> Result<(), CommError>;

    /// Declares the world failed. The first cause is kept; every rank that waits wakes with it.
    fn abort(&self, cause: AbortCause);

    /// The cause for which the world was declared failed, if it was.
    fn failure(&self) -> Option<AbortCause>;

    /// The deadlines of waits that begin now.
    fn timeouts(&self) -> Timeouts;

    /// Notes that this rank has ended its first step. It is called on one end of each rank, once.
    fn end_first_step(&self);
}

/// Copies the chunks of one range to the slices of their senders.
pub(crate) fn fill(into: &mut [&mut [u8]], offset: usize, chunks: &dyn Chunks) {
    for (index, slice) in into.iter_mut().enumerate() {
        let piece = chunks.chunk(index);
        slice[offset..offset + piece.len()].copy_from_slice(piece);
    }
}
