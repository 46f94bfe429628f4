//! The unread messages of one rank, and the place where that rank waits.

use super::remote::{Announced, Credit, Polling, Remote};
use super::shared_memory::{BorrowedBytes, Hold, Ticket};
use crate::operation::Operation;
use crate::tag::Tag;
use crate::transport::Loan;
use mesh::Rank;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sync::thread::yield_now;
use sync::{Condvar, Mutex, MutexGuard, lock, wait, wait_timeout};

/// How often a rank that waits hands its core to another runnable thread before it parks.
///
/// Where ranks share cores, the peer that is waited for is often the very thread that runs next, and
/// neither a sleep nor a wake is needed: measured on two cores, a 4 KiB all-reduce takes a fifth of
/// the time on 8 ranks, and less on 2. With nothing else to run the turns last a few microseconds.
#[cfg(not(shuttle))]
const TURNS_BEFORE_PARKING: u32 = 8;
/// A model's turns go to the threads that have something to do, so that none would ever park.
#[cfg(shuttle)]
const TURNS_BEFORE_PARKING: u32 = 0;
/// How long the turns of one wait may take. Where other programs have work for the cores, the system runs all of it
/// before a thread that yields: at a load of 40 on two cores a turn took 0.25 s.
const TURNS_AT_MOST: Duration = Duration::from_millis(1);

/// The bytes of a message, or the name of one in another process.
pub(crate) enum Payload {
    /// A copy that belongs to the sender's pool and goes back to it when the last reader is done.
    Copied(Arc<Vec<u8>>),
    /// Memory of the sender, borrowed for a scope.
    BorrowedBytes(BorrowedBytes),
    /// Memory that the sender shares.
    Loan(Loan, Hold),
    /// A small message of another process, in a buffer of this one.
    Arrived { bytes: Arc<Vec<u8>>, _credit: Credit },
    /// A message whose bytes are in another process.
    Announced(Announced),
}

impl Payload {
    /// The content, if it is in this process: an announced message has none yet.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Payload::Copied(bytes) | Payload::Arrived { bytes, .. } => bytes,
            Payload::BorrowedBytes(lent) => lent.bytes(),
            Payload::Loan(loan, _) => (**loan).as_ref(),
            Payload::Announced(_) => &[],
        }
    }

    /// The length of the message in bytes, also of one in another process.
    pub(crate) fn len_bytes(&self) -> usize {
        match self {
            Payload::Announced(announced) => announced.len_bytes(),
            Payload::Copied(_) | Payload::Arrived { .. } | Payload::BorrowedBytes(_) | Payload::Loan(..) => {
                self.bytes().len()
            }
        }
    }

    /// The message in another process that this one stands for.
    pub(crate) fn announced(&self) -> Option<&Announced> {
        match self {
            Payload::Announced(announced) => Some(announced),
            Payload::Copied(_) | Payload::Arrived { .. } | Payload::BorrowedBytes(_) | Payload::Loan(..) => None,
        }
    }

    /// Notes that the message is about to be dropped unread.
    pub(crate) fn lose(&self) {
        match self {
            Payload::Copied(_) | Payload::Arrived { .. } => {}
            Payload::BorrowedBytes(lent) => lent.hold().lose(),
            Payload::Loan(_, hold) => hold.lose(),
            Payload::Announced(announced) => announced.lose(),
        }
    }

    pub(crate) fn is_of(&self, ticket: &Arc<Ticket>) -> bool {
        match self {
            Payload::Copied(_) | Payload::Arrived { .. } | Payload::Announced(_) => false,
            Payload::BorrowedBytes(lent) => lent.hold().is_of(ticket),
            Payload::Loan(_, hold) => hold.is_of(ticket),
        }
    }
}

/// A message in an inbox.
pub(crate) struct Envelope {
    pub(crate) tag: Tag,
    pub(crate) operation: Operation,
    pub(crate) payload: Payload,
}

/// Why a wait ended early.
pub(crate) enum Interrupted {
    /// The deadline passed after this long; `Rank` is the first that had not delivered.
    Deadline(Option<Rank>, Duration),
    /// The world failed.
    Failed,
    /// A rank that was waited for has left.
    Left(Rank),
}

/// The messages that the owner of an inbox waits for. Others wake it only when all have come: a wake costs more than
/// everything else in a small collective.
enum Waiting {
    Nothing,
    /// A message of this tag from each rank in `State::missing`.
    Messages(Tag),
    /// A ticket to close, or a condition of [`Inbox::wait_for`].
    Completion,
}

struct State {
    /// By sender, in order of arrival.
    queues: Vec<VecDeque<Envelope>>,
    waiting: Waiting,
    /// The senders whose message the owner waits for.
    missing: Vec<Rank>,
    /// While the owner polls the sockets of its process: who ends that.
    poller: Option<Arc<dyn Remote>>,
    /// False once the owner has left.
    is_open: bool,
}

/// One rank's messages. Only that rank takes and waits; all others deliver.
pub(crate) struct Inbox {
    state: Mutex<State>,
    changed: Condvar,
}

/// Whether the world still runs, so that waiting still makes sense.
pub(crate) trait Liveness {
    fn has_failed(&self) -> bool;
    fn has_left(&self, rank: Rank) -> bool;
}

impl Inbox {
    pub(crate) fn new(world_size: usize) -> Inbox {
        Inbox {
            state: Mutex::new(State {
                queues: (0..world_size).map(|_| VecDeque::new()).collect(),
                waiting: Waiting::Nothing,
                missing: Vec::with_capacity(world_size),
                poller: None,
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
    pub(crate) fn deliver(&self, from: Rank, envelope: Envelope) -> Result<(), Envelope> {
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
        if completes {
            self.notify(state);
        }
        Ok(())
    }

    /// Makes the owner, which waits, look at its state.
    fn notify(&self, state: MutexGuard<'_, State>) {
        let poller = state.poller.clone();
        drop(state);
        match poller {
            Some(remote) => remote.poke(),
            None => self.changed.notify_one(),
        }
    }

    /// Waits for a message of `tag` from each rank of `from` and moves them, in that order, to
    /// `taken`. On an interruption nothing is taken.
    pub(crate) fn take(
        &self,
        from: &[Rank],
        tag: Tag,
        (wait, polling): (Duration, &mut Polling<'_>),
        world: &dyn Liveness,
        taken: &mut Vec<Envelope>,
    ) -> Result<(), Interrupted> {
        let mut state = self.lock();
        let started = Instant::now();
        // A message that has come may be taken back before its receiver runs, so it looks again after each wait.
        loop {
            state.missing.clear();
            for &rank in from {
                if find(&state.queues[rank.0], tag).is_none() {
                    state.missing.push(rank);
                }
            }
            if state.missing.is_empty() {
                break;
            }
            let left = wait.saturating_sub(started.elapsed());
            state = self.wait_while(state, Waiting::Messages(tag), (left, polling), |state| {
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
    pub(crate) fn complete(
        &self,
        ticket: &Ticket,
        (wait, polling): (Duration, &mut Polling<'_>),
        world: &dyn Liveness,
    ) -> Result<(), Interrupted> {
        self.wait_for((wait, polling), world, || ticket.is_closed())
    }

    /// Waits until `is_done`. Whoever may make it true calls [`Inbox::wake_from_completion`] afterwards, and holds no
    /// lock then that `is_done` takes.
    pub(crate) fn wait_for(
        &self,
        (wait, polling): (Duration, &mut Polling<'_>),
        world: &dyn Liveness,
        is_done: impl Fn() -> bool,
    ) -> Result<(), Interrupted> {
        if is_done() {
            return Ok(());
        }
        let mut state = self.lock();
        state.missing.clear();
        self.wait_while(state, Waiting::Completion, (wait, polling), |_| {
            if is_done() {
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
    pub(crate) fn wait_until_closed(&self, ticket: &Ticket) {
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
        (wait, polling): (Duration, &mut Polling<'_>),
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
            state.poller = polling.take();
            if turns_left > 0 && waited < TURNS_AT_MOST {
                turns_left -= 1;
                drop(state);
                yield_now();
                polling.poll(Duration::ZERO);
                state = self.lock();
            } else if state.poller.is_some() {
                drop(state);
                polling.poll(wait - waited);
                state = self.lock();
            } else {
                state = wait_timeout(&self.changed, state, wait - waited);
            }
            state.poller = None;
        };
        state.waiting = Waiting::Nothing;
        ended.map(|()| state)
    }

    /// Wakes the owner if it waits for a ticket or for a condition: it may hold now.
    pub(crate) fn wake_from_completion(&self) {
        let state = self.lock();
        if matches!(state.waiting, Waiting::Completion) {
            self.notify(state);
        }
    }

    /// Makes the owner look at the world again. The lock makes sure that an owner that has looked
    /// before the world changed is waiting by now.
    pub(crate) fn wake(&self) {
        let poller = self.lock().poller.clone();
        self.changed.notify_all();
        if let Some(remote) = poller {
            remote.poke();
        }
    }

    /// Drops the unread messages of `ticket`; returns whether there were any.
    pub(crate) fn take_back(&self, ticket: &Arc<Ticket>) -> bool {
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

    /// Drops the unread message that `from` announced under `message` and has taken back.
    pub(crate) fn withdraw(&self, from: Rank, message: u64) {
        let mut state = self.lock();
        let is_withdrawn = |e: &Envelope| e.payload.announced().is_some_and(|announced| announced.message() == message);
        let queue = &mut state.queues[from.0];
        let withdrawn = queue.iter().position(is_withdrawn).and_then(|index| queue.remove(index));
        drop(state);
        drop(withdrawn);
    }

    /// Refuses messages from now on and drops the unread ones.
    pub(crate) fn close(&self) {
        let mut unread = Vec::new();
        let mut state = self.lock();
        state.is_open = false;
        for queue in &mut state.queues {
            unread.extend(queue.drain(..));
        }
        drop(state);
        for envelope in &unread {
            envelope.payload.lose();
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
