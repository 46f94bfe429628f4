//! Where the messages for one rank lie, and where that rank waits.

use super::shared_memory::{Hold, Lent, Ticket};
use crate::operation::Operation;
use crate::tag::Tag;
use crate::transport::Loan;
use mesh::Rank;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use sync::{lock, wait, wait_timeout};

/// How often a rank that waits hands its core to another runnable thread before it parks.
///
/// Where ranks share cores, the peer that is waited for is often the very thread that runs next, and
/// neither a sleep nor a wake is needed: measured on two cores, a 4 KiB all-reduce takes a fifth of
/// the time on 8 ranks, and less on 2. With nothing else to run the turns last a few microseconds.
const TURNS_BEFORE_PARKING: u32 = 8;

/// The bytes of a message, wherever they lie.
pub(super) enum Payload {
    /// A copy that belongs to the sender's pool and goes back to it when the last reader is done.
    Copied(Arc<Vec<u8>>),
    /// Memory of the sender, borrowed for a scope.
    Lent(Lent),
    /// Memory that the sender shares.
    Loan(Loan, Hold),
}

impl Payload {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Payload::Copied(bytes) => bytes,
            Payload::Lent(lent) => lent.bytes(),
            Payload::Loan(loan, _) => (**loan).as_ref(),
        }
    }

    /// What tells the sender that its memory is free again; a copy needs no telling.
    fn hold(&self) -> Option<&Hold> {
        match self {
            Payload::Copied(_) => None,
            Payload::Lent(lent) => Some(lent.hold()),
            Payload::Loan(_, hold) => Some(hold),
        }
    }

    fn is_of(&self, ticket: &Arc<Ticket>) -> bool {
        self.hold().is_some_and(|hold| hold.is_of(ticket))
    }
}

/// A message in an inbox.
pub(super) struct Envelope {
    pub(super) tag: Tag,
    pub(super) operation: Operation,
    pub(super) payload: Payload,
}

/// Why a wait ended early.
pub(super) enum Interrupted {
    /// The deadline passed after this long; `Rank` is the first that had not delivered.
    Deadline(Option<Rank>, Duration),
    /// The world failed.
    Failed,
    /// A rank that was waited for has left.
    Left(Rank),
}

/// What the owner of an inbox waits for. Others wake it only when all of it has come: a wake costs
/// more than everything else in a small collective.
enum Waiting {
    Nothing,
    /// A message of this tag from each rank in `State::missing`.
    Messages(Tag),
    /// A ticket to close.
    Completion,
}

struct State {
    /// By sender, in order of arrival.
    queues: Vec<VecDeque<Envelope>>,
    waiting: Waiting,
    /// The senders whose message the owner waits for.
    missing: Vec<Rank>,
    /// False once the owner has left.
    is_open: bool,
}

/// One rank's messages. Only that rank takes and waits; all others deliver.
pub(super) struct Inbox {
    state: Mutex<State>,
    changed: Condvar,
}

/// What an inbox must know about the world: whether waiting still makes sense.
pub(super) trait Liveness {
    fn has_failed(&self) -> bool;
    fn has_left(&self, rank: Rank) -> bool;
}

impl Inbox {
    pub(super) fn new(world_size: usize) -> Inbox {
        Inbox {
            state: Mutex::new(State {
                queues: (0..world_size).map(|_| VecDeque::new()).collect(),
                waiting: Waiting::Nothing,
                missing: Vec::with_capacity(world_size),
                is_open: true,
            }),
            changed: Condvar::new(),
        }
    }

    /// A panic while the lock is held leaves the state whole: nothing foreign runs under it.
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Puts a message in, or gives it back when the owner has left.
    pub(super) fn deliver(&self, from: Rank, envelope: Envelope) -> Result<(), Envelope> {
        let mut state = self.lock();
        if !state.is_open {
            return Err(envelope);
        }
        let completes = match state.waiting {
            Waiting::Messages(tag) if tag == envelope.tag => {
                let found = state.missing.iter().position(|&rank| rank == from);
                if let Some(index) = found {
                    state.missing.remove(index);
                }
                found.is_some() && state.missing.is_empty()
            }
            Waiting::Messages(_) | Waiting::Nothing | Waiting::Completion => false,
        };
        state.queues[from.0].push_back(envelope);
        drop(state);
        if completes {
            self.changed.notify_one();
        }
        Ok(())
    }

    /// Waits for a message of `tag` from each rank of `from` and moves them, in that order, to
    /// `taken`. On an interruption nothing is taken.
    pub(super) fn take(
        &self,
        from: &[Rank],
        tag: Tag,
        wait: Duration,
        world: &dyn Liveness,
        taken: &mut Vec<Envelope>,
    ) -> Result<(), Interrupted> {
        let mut state = self.lock();
        state.missing.clear();
        for &rank in from {
            if find(&state.queues[rank.0], tag).is_none() {
                state.missing.push(rank);
            }
        }
        if !state.missing.is_empty() {
            state = self.wait_while(state, Waiting::Messages(tag), wait, |state| {
                if state.missing.is_empty() {
                    return Ok(Progress::Done);
                }
                if world.has_failed() {
                    return Err(Interrupted::Failed);
                }
                match state.missing.iter().find(|&&rank| world.has_left(rank)) {
                    Some(&gone) => Err(Interrupted::Left(gone)),
                    None => Ok(Progress::Pending),
                }
            })?;
        }
        for &rank in from {
            let queue = &mut state.queues[rank.0];
            taken.extend(find(queue, tag).and_then(|index| queue.remove(index)));
        }
        Ok(())
    }

    /// Waits until `ticket` is closed. The interruption names no rank: the caller finds out who has
    /// not read by taking the messages back.
    pub(super) fn complete(&self, ticket: &Ticket, wait: Duration, world: &dyn Liveness) -> Result<(), Interrupted> {
        if ticket.is_closed() {
            return Ok(());
        }
        let mut state = self.lock();
        state.missing.clear();
        self.wait_while(state, Waiting::Completion, wait, |_| {
            if ticket.is_closed() {
                return Ok(Progress::Done);
            }
            if world.has_failed() {
                return Err(Interrupted::Failed);
            }
            Ok(Progress::Pending)
        })
        .map(drop)
    }

    /// Waits, without a deadline, until the readers that are reading now have finished.
    pub(super) fn wait_until_closed(&self, ticket: &Ticket) {
        let mut state = self.lock();
        while !ticket.is_closed() {
            state.waiting = Waiting::Completion;
            state = wait(&self.changed, state);
        }
        state.waiting = Waiting::Nothing;
    }

    fn wait_while<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        waiting: Waiting,
        wait: Duration,
        progress: impl Fn(&State) -> Result<Progress, Interrupted>,
    ) -> Result<MutexGuard<'a, State>, Interrupted> {
        assert!(matches!(state.waiting, Waiting::Nothing), "two threads wait on one rank's transport");
        state.waiting = waiting;
        let started = Instant::now();
        let mut turns_left = TURNS_BEFORE_PARKING;
        let ended = loop {
            match progress(&state) {
                Ok(Progress::Done) => break Ok(()),
                Err(interrupted) => break Err(interrupted),
                Ok(Progress::Pending) => {}
            }
            let waited = started.elapsed();
            if waited >= wait {
                let peer = state.missing.first().copied();
                break Err(Interrupted::Deadline(peer, waited));
            }
            if turns_left > 0 {
                turns_left -= 1;
                drop(state);
                std::thread::yield_now();
                state = self.lock();
                continue;
            }
            state = wait_timeout(&self.changed, state, wait - waited);
        };
        state.waiting = Waiting::Nothing;
        ended.map(|()| state)
    }

    /// Wakes the owner if it waits for a ticket: one of its tickets has closed.
    pub(super) fn wake_from_completion(&self) {
        let is_waiting = matches!(self.lock().waiting, Waiting::Completion);
        if is_waiting {
            self.changed.notify_one();
        }
    }

    /// Makes the owner look at the world again. The lock makes sure that an owner that has looked
    /// before the world changed is waiting by now.
    pub(super) fn wake(&self) {
        drop(self.lock());
        self.changed.notify_all();
    }

    /// Drops the messages of `ticket` that lie unread; returns whether there were any.
    pub(super) fn take_back(&self, ticket: &Arc<Ticket>) -> bool {
        let mut unread = Vec::new();
        let mut state = self.lock();
        for queue in &mut state.queues {
            while let Some(index) = queue.iter().position(|e| e.payload.is_of(ticket)) {
                unread.extend(queue.remove(index));
            }
        }
        drop(state);
        !unread.is_empty()
    }

    /// Refuses messages from now on and drops those that lie unread.
    pub(super) fn close(&self) {
        let mut unread = Vec::new();
        let mut state = self.lock();
        state.is_open = false;
        for queue in &mut state.queues {
            unread.extend(queue.drain(..));
        }
        drop(state);
        for hold in unread.iter().filter_map(|e| e.payload.hold()) {
            hold.lose();
        }
    }
}

enum Progress {
    Done,
    Pending,
}

fn find(queue: &VecDeque<Envelope>, tag: Tag) -> Option<usize> {
    queue.iter().position(|envelope| envelope.tag == tag)
}
