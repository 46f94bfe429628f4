//! Supervises what a rank has given to NCCL, on a thread of its own.
//!
//! Where a call does not end before the deadline, NCCL reports a failure, or the world has failed, all communicators of
//! the rank are cancelled together: then streams that wait for another rank continue, and the threads that wait for
//! them report the failure. Nothing is launched here.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use comm::{AbortCause, CommError, Operation, Timeouts, Transport};
use device::DeviceError;
use gpu::{DriverError, EventHandle, Gpu, StreamHandle};
use mesh::Rank;
use nvidia::nccl::{CollectiveError, Communicator, Library, Progress};
use sync::lock;

use super::error::NcclError;

/// The time between two looks at what is under way.
const PAUSE: Duration = Duration::from_micros(500);
/// The same where only messages may be under way.
const IDLE: Duration = Duration::from_millis(20);
/// The time in which a call is usually launched.
const SOON: Duration = Duration::from_micros(200);
/// How long the world may take to name a lost rank whose end NCCL reports without a name.
const NAMING: Duration = Duration::from_secs(2);
/// How many deadlines the work before a call may take.
const WAITS_BEFORE_A_CALL: u32 = 10;
/// How long other ranks may take to end their communicators together with this one.
const ENDING: Duration = Duration::from_secs(2);

/// The name of a call in failures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CallName {
    pub(super) operation: Operation,
    /// The members of its group.
    pub(super) peers: String,
}

/// A call that its stream has not ended.
struct UnderWay {
    name: CallName,
    begun: EventHandle,
    ended: EventHandle,
    /// When the stream was seen to have come to it.
    since: Option<Instant>,
    submitted: Instant,
}

#[derive(Default)]
struct State {
    communicators: Vec<Arc<Communicator>>,
    /// By stream, in order.
    calls: BTreeMap<u64, VecDeque<UnderWay>>,
    /// Streams of messages.
    outboxes: Vec<StreamHandle>,
    /// Not in use.
    events: Vec<EventHandle>,
    failure: Option<NcclError>,
    is_cancelled: bool,
    is_ending: bool,
}

impl State {
    fn is_idle(&self) -> bool {
        self.calls.values().all(VecDeque::is_empty)
    }
}

/// The parts that the thread shares with its rank.
struct Shared {
    library: Arc<Library>,
    gpu: Arc<dyn Gpu>,
    transport: Arc<dyn Transport>,
    timeouts: Timeouts,
    state: Mutex<State>,
    changed: Condvar,
}

/// See the top of the file.
pub(super) struct Watch {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Watch {
    /// Starts the thread. `transport` is an end of the rank, for failures alone.
    pub(super) fn start(
        library: Arc<Library>,
        gpu: Arc<dyn Gpu>,
        transport: Arc<dyn Transport>,
        timeouts: Timeouts,
    ) -> Result<Watch, DeviceError> {
        let (state, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { library, gpu, transport, timeouts, state, changed });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("nccl".into()).spawn(move || own.supervise());
        let thread = thread.map_err(|cause| DeviceError::Threads { threads: 1, cause })?;
        Ok(Watch { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Refuses to continue after a failure.
    pub(super) fn check(&self) -> Result<(), DeviceError> {
        let state = lock(&self.shared.state);
        if !state.is_cancelled {
            return Ok(());
        }
        match (&state.failure, self.shared.world_failure()) {
            (Some(own), _) => Err(DeviceError::Communication(Box::new(own.clone()))),
            (None, Some(world)) => Err(DeviceError::Communication(Box::new(world))),
            (None, None) => Ok(()),
        }
    }

    /// Keeps a communicator, so that it is cancelled with the others.
    pub(super) fn keep(&self, communicator: &Arc<Communicator>) {
        lock(&self.shared.state).communicators.push(Arc::clone(communicator));
    }

    /// Waits until a call of `communicator` has been launched.
    pub(super) fn launched(
        &self,
        communicator: &Communicator,
        name: &CallName,
        submitted: Result<Progress, CollectiveError>,
    ) -> Result<(), DeviceError> {
        match submitted {
            Ok(Progress::Done) => Ok(()),
            Ok(Progress::Continues) => self.settle(communicator, name),
            Err(cause) => Err(self.failed(name, cause)),
        }
    }

    /// Waits until the last call of `communicator` is done, which may be the meeting of its ranks.
    pub(super) fn settle(&self, communicator: &Communicator, name: &CallName) -> Result<(), DeviceError> {
        let started = Instant::now();
        loop {
            match communicator.poll() {
                Ok(Progress::Done) => return Ok(()),
                Ok(Progress::Continues) => {}
                Err(cause) => return Err(self.failed(name, cause)),
            }
            if let Some(world) = self.shared.world_failure() {
                return Err(DeviceError::Communication(Box::new(world)));
            }
            if started.elapsed() > self.shared.wait() {
                return Err(DeviceError::Communication(Box::new(self.shared.late(name, started.elapsed()))));
            }
            // A launch takes as long as a few looks, a meeting much longer.
            match started.elapsed() < SOON {
                true => std::thread::yield_now(),
                false => std::thread::sleep(PAUSE / 10),
            }
        }
    }

    /// The error of a call that NCCL refuses. A rank that is lost is named by the world.
    pub(super) fn failed(&self, name: &CallName, cause: CollectiveError) -> DeviceError {
        match self.shared.named_by_the_world() {
            Some(world) => DeviceError::Communication(Box::new(world)),
            None => DeviceError::Communication(Box::new(self.shared.failed(name, cause))),
        }
    }

    /// An event that is not in use.
    fn event(&self) -> Result<EventHandle, DriverError> {
        let known = lock(&self.shared.state).events.pop();
        known.map_or_else(|| self.shared.gpu.create_event(), Ok)
    }

    /// The point before a call on `stream`.
    pub(super) fn begin(&self, stream: StreamHandle) -> Result<EventHandle, DriverError> {
        let begun = self.event()?;
        self.shared.gpu.record(begun, stream).map(|()| begun)
    }

    /// Supervises the call that was submitted to `stream` since `begun`.
    pub(super) fn end(&self, stream: StreamHandle, begun: EventHandle, name: CallName) -> Result<(), DriverError> {
        let ended = self.event()?;
        self.shared.gpu.record(ended, stream)?;
        let mut state = lock(&self.shared.state);
        let call = UnderWay { name, begun, ended, since: None, submitted: Instant::now() };
        state.calls.entry(stream.0).or_default().push_back(call);
        drop(state);
        self.shared.changed.notify_all();
        Ok(())
    }

    /// A stream for messages to one rank: they run next to all other work, since a send ends when its receiver has
    /// come. No event follows a send, which would hold up a hardware queue until then.
    pub(super) fn outbox(&self) -> Result<StreamHandle, DriverError> {
        let stream = self.shared.gpu.create_urgent_stream()?;
        lock(&self.shared.state).outboxes.push(stream);
        Ok(stream)
    }

    /// Lets `outbox` begin what follows after the work of `stream` so far.
    pub(super) fn order(&self, outbox: StreamHandle, stream: StreamHandle) -> Result<(), DriverError> {
        let ready = self.begin(stream)?;
        let waits = self.shared.gpu.wait(outbox, ready);
        lock(&self.shared.state).events.push(ready);
        waits
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        lock(&self.shared.state).is_ending = true;
        self.shared.changed.notify_all();
        if let Some(thread) = lock(&self.thread).take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn rank(&self) -> Rank {
        self.transport.rank()
    }

    /// How long a call may take now: longer in the first step.
    fn wait(&self) -> Duration {
        self.timeouts.wait.max(self.transport.timeouts().wait)
    }

    fn world_failure(&self) -> Option<CommError> {
        let AbortCause { rank: by, description: why } = self.transport.failure()?;
        Some(CommError::Aborted { rank: self.rank(), by, why })
    }

    /// The failure of the world, which may be a moment later than NCCL's.
    fn named_by_the_world(&self) -> Option<CommError> {
        let started = Instant::now();
        loop {
            let failure = self.world_failure();
            if failure.is_some() || started.elapsed() > NAMING.min(self.wait()) {
                return failure;
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn failed(&self, name: &CallName, cause: CollectiveError) -> NcclError {
        let (operation, peers) = (name.operation.to_string(), name.peers.clone());
        NcclError::Failed { rank: self.rank(), operation, peers, cause }
    }

    fn late(&self, name: &CallName, waited: Duration) -> NcclError {
        NcclError::Late {
            rank: self.rank(),
            operation: name.operation,
            peers: name.peers.clone(),
            waited_ms: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
            setting: self.timeouts.setting(),
        }
    }

    fn supervise(&self) {
        let mut state = lock(&self.state);
        loop {
            if state.is_ending && (state.is_idle() || state.is_cancelled) {
                break;
            }
            // Messages may wait for their receivers where nothing else is under way.
            if !state.is_cancelled {
                self.look(&mut state);
            }
            let waits = if state.is_idle() || state.is_cancelled { IDLE } else { PAUSE };
            let waited = self.changed.wait_timeout(state, waits);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        self.end(&mut state);
    }

    /// One look at everything under way.
    fn look(&self, state: &mut State) {
        if self.transport.failure().is_some() {
            return self.cancel(state);
        }
        let Err(error) = self.look_at_calls(state) else { return };
        // A lost rank is named by the world.
        if matches!(error, NcclError::Late { .. }) || self.named_by_the_world().is_none() {
            self.transport.abort(AbortCause { rank: self.rank(), description: error.to_string() });
            state.failure = Some(error);
        }
        self.cancel(state);
    }

    fn look_at_calls(&self, state: &mut State) -> Result<(), NcclError> {
        let State { calls, events, communicators, .. } = state;
        for calls in calls.values_mut() {
            while let Some(call) = calls.front_mut() {
                // A GPU that fails is reported by whoever waits for its streams.
                if self.gpu.is_reached(call.ended).unwrap_or(true) {
                    events.extend([call.begun, call.ended]);
                    calls.pop_front();
                    continue;
                }
                let has_begun = call.since.is_some() || self.gpu.is_reached(call.begun).unwrap_or(true);
                // A stream may have much to do before it comes to a call, but not for ever.
                let (since, limit) = match has_begun {
                    true => (*call.since.get_or_insert_with(Instant::now), self.wait()),
                    false => (call.submitted, self.wait() * WAITS_BEFORE_A_CALL),
                };
                // A member that has not come is named first by the one that waits for it on the host.
                if since.elapsed() > limit + NAMING.min(self.wait()) {
                    return Err(self.late(&call.name, since.elapsed()));
                }
                break;
            }
        }
        let under_way = calls.values().find_map(|calls| calls.front()).map(|call| &call.name);
        let Some(name) = under_way else { return Ok(()) };
        communicators.iter().try_for_each(|known| known.poll().map(|_| ())).map_err(|cause| self.failed(name, cause))
    }

    /// Cancels everything, so that streams continue. The world has failed.
    fn cancel(&self, state: &mut State) {
        state.is_cancelled = true;
        let _ = self.library.abort(state.communicators.iter().map(|known| &**known));
        state.calls.clear();
    }

    /// Ends communicators in order where all ranks end theirs, and otherwise cancels them.
    fn end(&self, state: &mut State) {
        let started = Instant::now();
        let has_failed = || self.transport.failure().is_some() || started.elapsed() > ENDING;
        for outbox in &state.outboxes {
            while !state.is_cancelled && !has_failed() && self.gpu.has_ended(*outbox) == Ok(false) {
                std::thread::sleep(PAUSE);
            }
        }
        if !state.is_cancelled && self.transport.failure().is_none() {
            for communicator in &state.communicators {
                let _ = communicator.finish();
            }
        }
        for communicator in state.communicators.drain(..) {
            while !has_failed() && communicator.poll() == Ok(Progress::Continues) {
                std::thread::sleep(PAUSE);
            }
            // Others still have it where a thread of the rank has not ended.
            if let Some(own) = Arc::into_inner(communicator) {
                let _ = own.close();
            }
        }
        for outbox in state.outboxes.drain(..) {
            let _ = self.gpu.destroy_stream(outbox);
        }
        for event in state.events.drain(..) {
            let _ = self.gpu.destroy_event(event);
        }
    }
}
