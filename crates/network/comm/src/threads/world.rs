//! The state that all ends of a world share in one process.

use super::inbox::{Envelope, Inbox, Liveness};
use super::remote::Remote;
use crate::error::AbortCause;
use crate::transport::Timeouts;
use mesh::Rank;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use sync::lock;

/// A lane of all ranks: messages of different lanes never meet.
struct Lane {
    /// By rank; only ranks of this process have one.
    inboxes: Vec<Option<Arc<Inbox>>>,
    left: Vec<AtomicBool>,
}

type Listener = Box<dyn FnOnce(&AbortCause) + Send>;

/// A world of ranks, as one process sees it.
pub(crate) struct World {
    lanes: Vec<Lane>,
    failure: OnceLock<AbortCause>,
    /// Held while the first cause is passed on.
    failing: Mutex<()>,
    /// Called once, when the world fails.
    listeners: Mutex<Vec<Listener>>,
    timeouts: Timeouts,
    remote: Option<Arc<dyn Remote>>,
    /// The ends of this process that have not left.
    open_ends: AtomicUsize,
    /// The ranks of this process that have not ended their first step.
    in_first_step: AtomicUsize,
}

impl World {
    /// A world whose ranks all live in this process.
    pub(crate) fn of_threads(world_size: usize, num_lanes: usize, timeouts: Timeouts) -> World {
        World::new(&vec![true; world_size], num_lanes, timeouts, None)
    }

    /// A world in which this process has the ranks that `is_local`, and `remote` reaches the others.
    pub(crate) fn new(
        is_local: &[bool],
        num_lanes: usize,
        timeouts: Timeouts,
        remote: Option<Arc<dyn Remote>>,
    ) -> World {
        let world_size = is_local.len();
        let lane = |_| Lane {
            inboxes: is_local.iter().map(|&local| local.then(|| Arc::new(Inbox::new(world_size)))).collect(),
            left: (0..world_size).map(|_| AtomicBool::new(false)).collect(),
        };
        let local = is_local.iter().filter(|&&local| local).count();
        World {
            lanes: (0..num_lanes).map(lane).collect(),
            failure: OnceLock::new(),
            failing: Mutex::default(),
            listeners: Mutex::default(),
            timeouts,
            remote,
            open_ends: AtomicUsize::new(local * num_lanes),
            in_first_step: AtomicUsize::new(local),
        }
    }

    /// The deadlines of waits that begin now: those of the first step while a rank of this process is in it.
    pub(crate) fn timeouts(&self) -> Timeouts {
        match self.in_first_step.load(Ordering::Acquire) {
            0 => self.timeouts,
            _ => self.timeouts.in_first_step(),
        }
    }

    /// Notes that a rank of this process has ended its first step.
    pub(crate) fn end_first_step(&self) {
        let ended = |ranks: usize| ranks.checked_sub(1);
        // None is left where a rank has noted it twice.
        let _ = self.in_first_step.fetch_update(Ordering::AcqRel, Ordering::Acquire, ended);
    }

    pub(crate) fn world_size(&self) -> usize {
        self.lanes.first().map_or(0, |lane| lane.left.len())
    }

    pub(crate) fn num_lanes(&self) -> usize {
        self.lanes.len()
    }

    pub(crate) fn remote(&self) -> Option<&Arc<dyn Remote>> {
        self.remote.as_ref()
    }

    /// The unread messages of `rank`, if it lives in this process.
    pub(crate) fn inbox(&self, lane: usize, rank: Rank) -> Option<&Arc<Inbox>> {
        self.lanes.get(lane)?.inboxes.get(rank.0)?.as_ref()
    }

    /// The inboxes of a lane in this process, with their ranks.
    pub(crate) fn inboxes(&self, lane: usize) -> impl Iterator<Item = (Rank, &Arc<Inbox>)> {
        let inboxes = self.lanes[lane].inboxes.iter().enumerate();
        inboxes.filter_map(|(rank, inbox)| inbox.as_ref().map(|inbox| (Rank(rank), inbox)))
    }

    /// Puts a message of another process into an inbox of this one, or gives it back when its owner has left.
    pub(crate) fn deliver(&self, lane: usize, from: Rank, to: Rank, envelope: Envelope) -> Result<(), Envelope> {
        match self.inbox(lane, to) {
            Some(inbox) => inbox.deliver(from, envelope),
            None => Err(envelope),
        }
    }

    /// Notes that `rank` has left `lane`, and wakes those that may wait for it.
    pub(crate) fn set_left(&self, lane: usize, rank: Rank) {
        self.lanes[lane].left[rank.0].store(true, Ordering::Release);
        self.wake_all();
    }

    pub(crate) fn failure(&self) -> Option<&AbortCause> {
        self.failure.get()
    }

    /// Declares the world failed, here and in all other processes. The first cause is kept.
    ///
    /// The failure goes to other processes before the ranks of this one learn of it: they leave then, and no peer may
    /// see that first. So a process passes on a failure that it hears of, too.
    pub(crate) fn abort(&self, cause: AbortCause) {
        let failing = lock(&self.failing);
        if self.failure.get().is_some() {
            return;
        }
        if let Some(remote) = &self.remote {
            remote.abort(&cause);
        }
        let _ = self.failure.set(cause);
        drop(failing);
        self.wake_all();
        let listeners = std::mem::take(&mut *lock(&self.listeners));
        if let Some(cause) = self.failure.get() {
            listeners.into_iter().for_each(|listener| listener(cause));
        }
    }

    pub(crate) fn wake_all(&self) {
        for inbox in self.lanes.iter().flat_map(|lane| &lane.inboxes).flatten() {
            inbox.wake();
        }
    }

    /// Ends the part of `rank` in `lane`. The last end of a process waits until other processes have read its messages.
    pub(crate) fn leave(&self, lane: usize, rank: Rank) {
        self.lanes[lane].left[rank.0].store(true, Ordering::Release);
        if let Some(remote) = &self.remote {
            remote.leave(lane, rank);
        }
        if let Some(inbox) = self.inbox(lane, rank) {
            inbox.close();
        }
        self.wake_all();
        let is_last = self.open_ends.fetch_sub(1, Ordering::AcqRel) == 1;
        if let Some(remote) = self.remote.as_ref().filter(|_| is_last) {
            remote.close(self.timeouts().wait, &|| self.failure.get().is_some());
        }
    }
}

/// A lane of a world.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) world: Arc<World>,
    pub(crate) lane: usize,
}

impl Liveness for Place {
    fn has_failed(&self) -> bool {
        self.world.failure.get().is_some()
    }

    fn has_left(&self, rank: Rank) -> bool {
        self.world.lanes[self.lane].left[rank.0].load(Ordering::Acquire)
    }
}

/// The failure of a world, for code outside of its ranks, which learns of a failure here and reports one.
#[derive(Clone)]
pub struct WorldFailure {
    world: Arc<World>,
}

impl WorldFailure {
    pub(crate) fn new(world: Arc<World>) -> WorldFailure {
        WorldFailure { world }
    }

    /// Declares the world failed in all processes. The first cause is kept.
    pub fn abort(&self, cause: AbortCause) {
        self.world.abort(cause);
    }

    /// The cause for which the world was declared failed, if it was.
    pub fn cause(&self) -> Option<AbortCause> {
        self.world.failure.get().cloned()
    }

    /// Calls `listener` once when the world fails, or at once if it has failed. The call may come from the thread that
    /// moves the bytes of all ranks: it must not block.
    pub fn on_failure(&self, listener: impl FnOnce(&AbortCause) + Send + 'static) {
        let mut listeners = lock(&self.world.listeners);
        if self.world.failure.get().is_none() {
            listeners.push(Box::new(listener));
            return;
        }
        drop(listeners);
        if let Some(cause) = self.world.failure.get() {
            listener(cause);
        }
    }
}
