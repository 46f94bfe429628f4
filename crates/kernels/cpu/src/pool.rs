//! The threads of a rank next to its own: all work on the parts of one task. Each begins with a row of parts of its
//! own, which are next to each other, so that what an operation leaves in a core's caches is where the next one looks
//! for it; whoever has done its own takes from the end of the longest row.
//!
//! Between tasks a thread looks for the next one for some microseconds before it sleeps, for tasks follow each other
//! closely and waking costs more than most of them. A task wakes as many sleepers as it has parts and the machine has
//! cores, and its end wakes the rank's own thread alone. It ends when its parts are done: a thread that slept through
//! it is not waited for.

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use device::{DeviceError, Op};
use sync::atomic::{AtomicU64, Ordering};
use sync::thread::{Builder, JoinHandle};
use sync::{Condvar, Mutex, MutexGuard, lock, wait};

use crate::affinity::stay_on;
use crate::share::Share;
use crate::task::{PairsMatMul, Task};
use crate::worker::Worker;

/// Looks at a changing number before sleeping: about 20 microseconds.
#[cfg(not(shuttle))]
const LOOKS: u32 = 1000;
/// A model of all orders needs no more than one.
#[cfg(shuttle)]
const LOOKS: u32 = 1;

/// Threads that wait for operations.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// State that the threads of a rank share.
struct Shared {
    state: Mutex<State>,
    /// Changes with every change that someone may wait for.
    changes: AtomicU64,
    /// A task is open, or the pool is over: threads of the pool wait for it.
    opened: Condvar,
    /// A task has ended: the rank's own thread waits for it.
    ended: Condvar,
    /// Threads of the pool that are woken for a task, at most: more than the cores of the machine do not run at once.
    most_woken: usize,
}

#[derive(Default)]
struct State {
    /// The task and the number of its parts, until all are taken.
    open: Option<(Task, usize)>,
    /// For each thread, the rank's own first, the parts that it takes first.
    rows: Vec<Range<usize>>,
    /// Parts that are being worked on.
    running: usize,
    failure: Option<Failure>,
    is_over: bool,
    /// Threads of the pool that sleep.
    sleepers: usize,
    /// Whether the rank's own thread sleeps.
    is_owner_asleep: bool,
}

impl State {
    /// A part for `thread`, if one is left: the next of its own, or the last of the longest row.
    fn take(&mut self, thread: usize) -> Option<usize> {
        self.rows[thread].next().or_else(|| self.rows.iter_mut().max_by_key(|row| row.len())?.next_back())
    }
}

/// The execution of one part of a task by a thread.
trait ExecutePart: Fn(&Task, Share) -> Result<(), DeviceError> {}

impl<F: Fn(&Task, Share) -> Result<(), DeviceError>> ExecutePart for F {}

/// How a part failed.
enum Failure {
    Error(DeviceError),
    Panic(Box<dyn Any + Send>),
}

impl Pool {
    /// A thread for each of `workers`, on the core of the same index, if there is one.
    pub(crate) fn start(workers: Vec<Worker>, cores: &[usize]) -> Result<Pool, DeviceError> {
        let most_woken = std::thread::available_parallelism().map_or(usize::MAX, usize::from);
        let (count, shared) = (workers.len(), Arc::new(Shared::new(most_woken)));
        let mut pool = Pool { shared, threads: Vec::with_capacity(count) };
        let rank = std::thread::current().name().unwrap_or("rank").to_string();
        for (index, worker) in workers.into_iter().enumerate() {
            let shared = Arc::clone(&pool.shared);
            let core = cores.get(index).copied();
            let serve = move || {
                core.into_iter().for_each(stay_on);
                shared.serve(index + 1, &|task: &Task, share| {
                    // SAFETY: `Shared::work` takes each part once, and opens a task when all parts of the one before
                    // are done.
                    unsafe { worker.execute_part(task, share) }
                });
            };
            let thread = Builder::new().name(format!("{rank}.{}", index + 1)).spawn(serve);
            pool.threads.push(thread.map_err(|cause| DeviceError::Threads { threads: count, cause })?);
        }
        Ok(pool)
    }

    /// Runs `op` on the calling thread's `own` worker and the pool's.
    pub(crate) fn execute(&self, own: &Worker, op: &Op) -> Result<(), DeviceError> {
        let Some(product) = PairsMatMul::of(op, own.products) else { return self.run(own, Task::Shares(*op)) };
        for round in own.rounds(&product, self.threads.len() + 1)? {
            self.run(own, Task::Panels(product, round))?;
            self.run(own, Task::Strips(product, round))?;
        }
        Ok(())
    }

    /// Runs all parts of `task`.
    fn run(&self, own: &Worker, task: Task) -> Result<(), DeviceError> {
        self.shared.run(task, self.threads.len() + 1, &|task: &Task, share| {
            // SAFETY: as in `start`.
            unsafe { own.execute_part(task, share) }
        })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.end();
        for thread in self.threads.drain(..) {
            // A part's panic has been handed to the rank's thread.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn new(most_woken: usize) -> Shared {
        let (state, changes) = (Mutex::default(), AtomicU64::new(0));
        Shared { state, changes, opened: Condvar::new(), ended: Condvar::new(), most_woken }
    }

    /// Runs all parts of `task` on `threads` threads, of which the calling one is the first.
    fn run(&self, task: Task, threads: usize, execute: &impl ExecutePart) -> Result<(), DeviceError> {
        match task.parts(threads) {
            0 => Ok(()),
            number => self.run_parts(task, (number, threads), execute),
        }
    }

    /// Runs the parts of `task`, of which there are `number`.
    fn run_parts(
        &self,
        task: Task,
        (number, threads): (usize, usize),
        execute: &impl ExecutePart,
    ) -> Result<(), DeviceError> {
        let mut state = self.state();
        state.open = Some((task, number));
        let row = |index: usize| number * index / threads..number * (index + 1) / threads;
        state.rows.clear();
        state.rows.extend((0..threads).map(row));
        self.wake(&state, (number - 1).min(self.most_woken));
        drop(state);
        self.work(0, execute);
        let mut state = self.wait_for_the_end();
        match state.failure.take() {
            None => Ok(()),
            Some(Failure::Error(error)) => Err(error),
            Some(Failure::Panic(payload)) => {
                drop(state);
                resume_unwind(payload)
            }
        }
    }

    /// Ends the threads.
    fn end(&self) {
        let mut state = self.state();
        state.is_over = true;
        self.wake(&state, usize::MAX);
    }

    /// Nothing panics while it holds the lock.
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Tells the threads of the pool that `state` has changed, and wakes `threads` of those that sleep.
    fn wake(&self, state: &State, threads: usize) {
        self.changes.fetch_add(1, Ordering::Release);
        match state.sleepers {
            0 => {}
            sleepers if sleepers <= threads => self.opened.notify_all(),
            _ => (0..threads).for_each(|_| self.opened.notify_one()),
        }
    }

    /// Tells the rank's own thread that a task has ended.
    fn wake_owner(&self, state: &State) {
        self.changes.fetch_add(1, Ordering::Release);
        if state.is_owner_asleep {
            self.ended.notify_one();
        }
    }

    /// The state once all parts of the task are done.
    fn wait_for_the_end(&self) -> MutexGuard<'_, State> {
        let mut state = self.state();
        while state.running > 0 || state.open.is_some() {
            let (again, is_new) = self.look(state);
            state = again;
            if !is_new {
                state.is_owner_asleep = true;
                state = wait(&self.ended, state);
                state.is_owner_asleep = false;
            }
        }
        state
    }

    /// The state once a task is open, or the pool is over.
    fn wait_for_a_task(&self) -> MutexGuard<'_, State> {
        let mut state = self.state();
        while state.open.is_none() && !state.is_over {
            let (again, is_new) = self.look(state);
            state = again;
            if !is_new {
                state.sleepers += 1;
                state = wait(&self.opened, state);
                state.sleepers -= 1;
            }
        }
        state
    }

    /// Looks some thousand times for a change, without the lock; the state, and whether it has changed since.
    fn look<'a>(&'a self, state: MutexGuard<'a, State>) -> (MutexGuard<'a, State>, bool) {
        let seen = self.changes.load(Ordering::Acquire);
        drop(state);
        let has_changed = || self.changes.load(Ordering::Acquire) != seen;
        let is_new = (0..LOOKS).any(|_| {
            std::hint::spin_loop();
            has_changed()
        });
        let state = self.state();
        (state, is_new || has_changed())
    }

    /// Runs a thread of the pool, with the row of this index, until the pool ends.
    fn serve(&self, thread: usize, execute: &impl ExecutePart) {
        while !self.wait_for_a_task().is_over {
            self.work(thread, execute);
        }
    }

    /// Works on parts of the open task until all are taken.
    fn work(&self, thread: usize, execute: &impl ExecutePart) {
        let mut state = self.state();
        while let Some((task, number)) = state.open {
            let Some(index) = state.take(thread) else { break };
            state.running += 1;
            if state.rows.iter().all(Range::is_empty) {
                state.open = None;
            }
            drop(state);
            let result = catch_unwind(AssertUnwindSafe(|| execute(&task, Share { index, number })));
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
            self.wake_owner(&state);
        }
    }
}

/// Models of the pool: in every order of threads that shuttle draws, each part of each task is run once, a failure
/// reaches the rank's thread, and no thread sleeps for ever. `tools/check-threads.sh models` runs them.
#[cfg(all(test, shuttle))]
mod models {
    use device::{Dtype, Tensor};
    use sync::shuttle::{check_pct, check_random};
    use sync::thread;

    use super::*;

    const ORDERS: usize = 5000;

    fn model(run: fn()) {
        check_random(run, ORDERS);
        check_pct(run, ORDERS, 3);
    }

    /// Threads of a pool that note each part, and a task after the other on the calling thread.
    fn run_tasks(
        (threads, most_woken): (usize, usize),
        tasks: usize,
        fails: fn(usize) -> bool,
    ) -> (Vec<usize>, Vec<bool>) {
        let shared = Arc::new(Shared::new(most_woken));
        let counts = Arc::new(Mutex::new(vec![0; 4]));
        let execute = |counts: Arc<Mutex<Vec<usize>>>| {
            move |_: &Task, share: Share| {
                lock(&counts)[share.index] += 1;
                match fails(share.index) {
                    false => Ok(()),
                    true => Err(DeviceError::Threads { threads: 0, cause: std::io::Error::other("planned") }),
                }
            }
        };
        let others: Vec<_> = (1..threads)
            .map(|thread| {
                let (shared, execute) = (Arc::clone(&shared), execute(Arc::clone(&counts)));
                thread::spawn(move || shared.serve(thread, &execute))
            })
            .collect();
        let own = execute(Arc::clone(&counts));
        let results = (0..tasks).map(|_| shared.run_parts(task(), (4, threads), &own).is_ok()).collect();
        shared.end();
        others.into_iter().for_each(|thread| thread.join().unwrap());
        let counts = lock(&counts).clone();
        (counts, results)
    }

    /// A task that nobody computes.
    fn task() -> Task {
        Task::Shares(Op::Fill { out: Tensor::new(0, 1, 1, Dtype::F32), value: 0.0 })
    }

    #[test]
    fn each_part_is_run_once_by_one_thread() {
        model(|| assert_eq!(run_tasks((3, 2), 2, |_| false), (vec![2; 4], vec![true; 2])));
    }

    #[test]
    fn a_task_that_wakes_fewer_threads_than_there_are_ends_as_well() {
        model(|| assert_eq!(run_tasks((4, 1), 2, |_| false), (vec![2; 4], vec![true; 2])));
    }

    #[test]
    fn a_failure_of_any_thread_is_the_failure_of_its_task() {
        model(|| assert_eq!(run_tasks((2, 1), 2, |index| index == 3).1, [false, false]));
    }
}
