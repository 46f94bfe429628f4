//! Streams with a thread of their own: work that is submitted to one runs there in order, while the submitting thread
//! continues.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use sync::mpsc::{Receiver, Sender, channel};
use sync::thread::{Builder, JoinHandle};
use sync::{Condvar, Mutex, MutexGuard, lock};

use crate::{DeviceError, Stream};

/// Work for a stream.
pub type Job = Box<dyn FnOnce() -> Result<(), DeviceError> + Send>;

/// Called once, on the stream's thread, when the first job of a stream fails: the other ranks must not wait for what
/// never comes.
pub type OnFailure = Arc<dyn Fn(Stream, &DeviceError) + Send + Sync>;

/// A point in the work of a stream: it is reached when everything submitted before has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamEvent {
    stream: Stream,
    /// Jobs of the stream until then.
    number: u64,
}

impl StreamEvent {
    /// Point `number` of `stream`, as the device that records it counts points.
    pub fn new(stream: Stream, number: u64) -> StreamEvent {
        StreamEvent { stream, number }
    }

    /// The stream that feeds this queue.
    pub fn stream(self) -> Stream {
        self.stream
    }

    /// Its number among the points of the device that recorded it.
    pub fn number(self) -> u64 {
        self.number
    }
}

/// The streams of a rank. One without a queue runs on the thread that submits, and has ended its work whenever that
/// thread looks.
#[derive(Default)]
pub struct StreamQueues {
    queues: [Option<StreamQueue>; Stream::COUNT],
}

impl StreamQueues {
    /// A queue, with a thread, for each of `streams`. `rank` names the threads.
    ///
    /// # Errors
    /// [`DeviceError::Threads`] where the system starts no more.
    pub fn start(streams: &[Stream], rank: &str, on_failure: &OnFailure) -> Result<StreamQueues, DeviceError> {
        let mut queues = StreamQueues::default();
        for stream in streams {
            let queue = StreamQueue::start(*stream, rank, on_failure)
                .map_err(|cause| DeviceError::Threads { threads: streams.len(), cause })?;
            queues.queues[stream.index()] = Some(queue);
        }
        Ok(queues)
    }

    /// The queue of a stream that has one.
    pub fn of(&self, stream: Stream) -> Option<&StreamQueue> {
        self.queues[stream.index()].as_ref()
    }

    /// The point that `stream` reaches when it has ended what was submitted so far.
    pub fn record(&self, stream: Stream) -> StreamEvent {
        StreamEvent { stream, number: self.of(stream).map_or(0, StreamQueue::submitted) }
    }

    /// Whatever is submitted to `stream` from here on begins after `event`.
    ///
    /// # Errors
    /// The first failure of the awaited stream.
    pub fn wait(&self, stream: Stream, event: StreamEvent) -> Result<(), DeviceError> {
        let Some(awaited) = self.of(event.stream).filter(|_| event.stream != stream) else { return Ok(()) };
        match self.of(stream) {
            None => awaited.shared.wait_for(event.number),
            Some(queue) => {
                let awaited = Arc::clone(&awaited.shared);
                queue.submit(Box::new(move || awaited.wait_for(event.number)));
                Ok(())
            }
        }
    }

    /// When a stream with a queue reached `event`; `None` where it has not, or so long ago that nobody knows.
    pub fn reached(&self, event: StreamEvent) -> Option<Instant> {
        self.of(event.stream)?.shared.state().end_of(event.number)
    }

    /// Waits until every stream has ended what was submitted to it.
    ///
    /// # Errors
    /// The first failure of a stream.
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        self.queues.iter().flatten().try_for_each(StreamQueue::synchronize)
    }
}

/// The thread of one stream, which ends with it.
pub struct StreamQueue {
    shared: Arc<Shared>,
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    stream: Stream,
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    submitted: u64,
    ended: u64,
    failure: Option<String>,
    /// When the last jobs ended, the last one last.
    ends: VecDeque<Instant>,
}

/// The number of ends that are kept: those of a step of any usual size, for traces.
const KEPT_ENDS: usize = 1 << 16;

impl State {
    fn end_job(&mut self) {
        self.ended += 1;
        if self.ends.len() == KEPT_ENDS {
            self.ends.pop_front();
        }
        self.ends.push_back(Instant::now());
    }

    /// When the job of this number, counted from 1, ended.
    fn end_of(&self, number: u64) -> Option<Instant> {
        let after = self.ended.checked_sub(number).filter(|_| number > 0)?;
        let index = self.ends.len().checked_sub(1 + usize::try_from(after).ok()?)?;
        self.ends.get(index).copied()
    }
}

impl StreamQueue {
    fn start(stream: Stream, rank: &str, on_failure: &OnFailure) -> std::io::Result<StreamQueue> {
        let shared = Arc::new(Shared { stream, state: Mutex::default(), ended: Condvar::new() });
        let (sender, receiver) = channel();
        let (own, on_failure) = (Arc::clone(&shared), Arc::clone(on_failure));
        let named = Builder::new().name(format!("{rank}.{stream:?}"));
        let thread = named.spawn(move || own.serve(&receiver, &*on_failure))?;
        Ok(StreamQueue { shared, jobs: Some(sender), thread: Some(thread) })
    }

    /// Runs `job` after everything that was submitted before, unless something of that has failed.
    pub fn submit(&self, job: Job) {
        self.shared.state().submitted += 1;
        if let Some(jobs) = &self.jobs {
            // The thread ends only with this queue.
            let _ = jobs.send(job);
        }
    }

    /// Jobs so far.
    pub fn submitted(&self) -> u64 {
        self.shared.state().submitted
    }

    /// Waits until everything submitted so far has ended.
    ///
    /// # Errors
    /// The first failure.
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        self.shared.wait_for(self.submitted())
    }
}

impl Drop for StreamQueue {
    fn drop(&mut self) {
        // The thread ends when there is no more to come.
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A job's panic has become its failure.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Nothing foreign runs while the lock is held.
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn serve(&self, jobs: &Receiver<Job>, on_failure: &dyn Fn(Stream, &DeviceError)) {
        for job in jobs {
            let has_failed = self.state().failure.is_some();
            let failure = if has_failed { None } else { run(job).err() };
            if let Some(failure) = &failure {
                on_failure(self.stream, failure);
            }
            let mut state = self.state();
            state.end_job();
            state.failure = state.failure.take().or(failure.map(|failure| failure.to_string()));
            drop(state);
            self.ended.notify_all();
        }
    }

    /// Waits until `number` jobs have ended. Every job has an end: what waits for other ranks has a deadline.
    fn wait_for(&self, number: u64) -> Result<(), DeviceError> {
        let mut state = self.state();
        while state.ended < number {
            state = sync::wait(&self.ended, state);
        }
        match &state.failure {
            None => Ok(()),
            Some(cause) => Err(DeviceError::Stream { stream: self.stream, cause: cause.clone() }),
        }
    }
}

fn run(job: Job) -> Result<(), DeviceError> {
    catch_unwind(AssertUnwindSafe(job)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_string());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Err(DeviceError::Panicked { message: text.unwrap_or_else(|| "no message".into()) })
    })
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    const BOTH: [Stream; 2] = [Stream::Reduce, Stream::Transfer];

    fn queues() -> StreamQueues {
        StreamQueues::start(&BOTH, "rank 0", &(Arc::new(|_, _: &DeviceError| {}) as OnFailure)).expect("threads")
    }

    fn submit(queues: &StreamQueues, stream: Stream, job: impl FnOnce() -> Result<(), DeviceError> + Send + 'static) {
        queues.of(stream).expect("a queue").submit(Box::new(job));
    }

    #[test]
    fn jobs_of_a_stream_run_in_order_and_waits_order_streams() {
        let (queues, log) = (queues(), Arc::new(Mutex::new(vec![])));
        let note = |number: u32, after: Duration| {
            let log = Arc::clone(&log);
            move || {
                std::thread::sleep(after);
                log.lock().expect("whole").push(number);
                Ok(())
            }
        };
        submit(&queues, Stream::Reduce, note(0, Duration::from_millis(20)));
        submit(&queues, Stream::Reduce, note(1, Duration::ZERO));
        let reduced = queues.record(Stream::Reduce);
        queues.wait(Stream::Transfer, reduced).expect("no failure");
        submit(&queues, Stream::Transfer, note(2, Duration::ZERO));
        queues.wait(Stream::Compute, queues.record(Stream::Transfer)).expect("no failure");
        assert_eq!(*log.lock().expect("whole"), [0, 1, 2]);
        let (first, both) = (StreamEvent { number: 1, ..reduced }, queues.reached(reduced).expect("kept"));
        assert!(queues.reached(first).expect("kept") < both && both <= Instant::now());
        assert_eq!(queues.reached(StreamEvent { number: 3, ..reduced }), None, "not reached");
        assert_eq!(queues.reached(queues.record(Stream::Compute)), None, "no queue");
    }

    #[test]
    fn the_first_failure_is_said_once_and_reaches_everyone_who_waits() {
        let failures = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&failures);
        let on_failure: OnFailure = Arc::new(move |_, _| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        let queues = StreamQueues::start(&BOTH, "rank 0", &on_failure).expect("threads");
        submit(&queues, Stream::Reduce, || panic!("first"));
        submit(&queues, Stream::Reduce, || panic!("never runs"));
        let event = queues.record(Stream::Reduce);
        queues.wait(Stream::Transfer, event).expect("it is the other stream that waits");
        let error = queues.synchronize().expect_err("failed").to_string();
        assert_eq!(error, "on the Reduce stream: a thread panicked: first");
        let error = queues.of(Stream::Transfer).expect("a queue").synchronize().expect_err("failed").to_string();
        assert_eq!(error, "on the Transfer stream: on the Reduce stream: a thread panicked: first");
        assert_eq!(failures.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn streams_without_a_queue_have_ended_at_once() {
        let queues = StreamQueues::default();
        queues.wait(Stream::Compute, queues.record(Stream::Reduce)).expect("nothing to wait for");
        queues.synchronize().expect("nothing to wait for");
    }
}

/// Models of streams: in every order of threads that shuttle draws, jobs run in their order, waits hold between
/// streams, and an end or a failure reaches everyone who waits. `tools/check-threads.sh models` runs them.
#[cfg(all(test, shuttle))]
mod models {
    use sync::shuttle::{check_pct, check_random};

    use super::*;

    const ORDERS: usize = 3000;
    const BOTH: [Stream; 2] = [Stream::Reduce, Stream::Transfer];

    fn model(run: fn()) {
        check_random(run, ORDERS);
        check_pct(run, ORDERS, 3);
    }

    fn queues() -> StreamQueues {
        StreamQueues::start(&BOTH, "rank 0", &(Arc::new(|_, _: &DeviceError| {}) as OnFailure)).expect("threads")
    }

    fn submit(queues: &StreamQueues, stream: Stream, job: impl FnOnce() -> Result<(), DeviceError> + Send + 'static) {
        queues.of(stream).expect("a queue").submit(Box::new(job));
    }

    #[test]
    fn jobs_run_in_order_and_waits_hold_between_streams() {
        model(|| {
            let (queues, log) = (queues(), Arc::new(Mutex::new(vec![])));
            let note = |number: u32| {
                let log = Arc::clone(&log);
                move || {
                    lock(&log).push(number);
                    Ok(())
                }
            };
            submit(&queues, Stream::Reduce, note(0));
            submit(&queues, Stream::Reduce, note(1));
            queues.wait(Stream::Transfer, queues.record(Stream::Reduce)).expect("no failure");
            submit(&queues, Stream::Transfer, note(2));
            queues.wait(Stream::Compute, queues.record(Stream::Transfer)).expect("no failure");
            assert_eq!(*lock(&log), [0, 1, 2]);
        });
    }

    #[test]
    fn a_failure_reaches_everyone_who_waits() {
        model(|| {
            let queues = queues();
            submit(&queues, Stream::Reduce, || Err(DeviceError::Panicked { message: "planned".into() }));
            queues.wait(Stream::Transfer, queues.record(Stream::Reduce)).expect("the other stream waits");
            assert!(queues.synchronize().is_err());
            assert!(queues.of(Stream::Transfer).expect("a queue").synchronize().is_err());
        });
    }
}
