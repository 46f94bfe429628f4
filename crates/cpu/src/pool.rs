//! The threads of a rank beside its own: all work on the parts of one operation, whoever is free takes the next.
//!
//! Between operations a thread looks for the next one for some microseconds before it sleeps, for operations follow each other closely and
//! waking costs more than most of them. An operation ends when its parts are done: a thread that slept through it is not waited for.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use device::{DeviceError, Op};

use crate::affinity::stay_on;
use crate::parts::{self, Share};
use crate::worker::Worker;

/// Looks at a changing number before sleeping: about 20 microseconds.
const LOOKS: u32 = 1000;

/// Threads that wait for operations.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// What the threads of a rank see of each other.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Changes with every change that someone may wait for.
    changes: AtomicU64,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The operation and the number of its parts, until all are taken.
    open: Option<(Op, usize)>,
    /// The next part.
    next: usize,
    /// Parts that are being worked on.
    running: usize,
    failure: Option<Failure>,
    is_over: bool,
    sleepers: usize,
}

/// How a part failed.
enum Failure {
    Error(DeviceError),
    Panic(Box<dyn Any + Send>),
}

impl Pool {
    /// A thread for each of `workers`, on the core of the same index, if there is one.
    pub(crate) fn start(workers: Vec<Worker>, cores: &[usize]) -> Result<Pool, DeviceError> {
        let (count, shared) = (workers.len(), Arc::new(Shared::default()));
        let mut pool = Pool { shared, threads: Vec::with_capacity(count) };
        let rank = std::thread::current().name().unwrap_or("rank").to_string();
        for (index, worker) in workers.into_iter().enumerate() {
            let shared = Arc::clone(&pool.shared);
            let core = cores.get(index).copied();
            let serve = move || {
                core.into_iter().for_each(stay_on);
                shared.serve(&worker);
            };
            let thread = Builder::new().name(format!("{rank}.{}", index + 1)).spawn(serve);
            pool.threads.push(thread.map_err(|cause| DeviceError::Threads { threads: count, cause })?);
        }
        Ok(pool)
    }

    /// Runs `op` on the calling thread's `own` worker and the pool's.
    pub(crate) fn execute(&self, own: &Worker, op: &Op) -> Result<(), DeviceError> {
        let number = parts::number(op, self.threads.len() + 1);
        let mut state = self.shared.state();
        (state.open, state.next) = (Some((*op, number)), 0);
        self.shared.announce(&state);
        drop(state);
        self.shared.work(own);
        let mut state = self.shared.wait_until(|state| state.running == 0 && state.open.is_none());
        match state.failure.take() {
            None => Ok(()),
            Some(Failure::Error(error)) => Err(error),
            Some(Failure::Panic(payload)) => {
                drop(state);
                resume_unwind(payload)
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.is_over = true;
        self.shared.announce(&state);
        drop(state);
        for thread in self.threads.drain(..) {
            // A part's panic has been handed to the rank's thread.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Nothing panics while it holds the lock.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells everyone that `state` has changed.
    fn announce(&self, state: &State) {
        self.changes.fetch_add(1, Ordering::Release);
        if state.sleepers > 0 {
            self.changed.notify_all();
        }
    }

    /// The state as soon as `holds`.
    fn wait_until(&self, holds: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let mut state = self.state();
        while !holds(&state) {
            let seen = self.changes.load(Ordering::Acquire);
            drop(state);
            let is_new = (0..LOOKS).any(|_| {
                std::hint::spin_loop();
                self.changes.load(Ordering::Acquire) != seen
            });
            state = self.state();
            if !is_new && self.changes.load(Ordering::Acquire) == seen {
                state.sleepers += 1;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.sleepers -= 1;
            }
        }
        state
    }

    /// What a thread of the pool does until the pool ends.
    fn serve(&self, worker: &Worker) {
        while !self.wait_until(|state| state.open.is_some() || state.is_over).is_over {
            self.work(worker);
        }
    }

    /// Works on parts of the open operation until all are taken.
    fn work(&self, worker: &Worker) {
        let mut state = self.state();
        while let Some((op, number)) = state.open {
            let share = Share { index: state.next, number };
            state.next += 1;
            state.running += 1;
            if state.next == number {
                state.open = None;
            }
            drop(state);
            let run = || parts::part(&op, share).map_or(Ok(()), |part| worker.execute(&part));
            let result = catch_unwind(AssertUnwindSafe(run));
            state = self.state();
            state.running -= 1;
            let failure = match result {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(Failure::Error(error)),
                Err(payload) => Some(Failure::Panic(payload)),
            };
            state.failure = state.failure.take().or(failure);
        }
        if state.running == 0 {
            self.announce(&state);
        }
    }
}
