//! Supervises what a rank has given to NCCL, on a thread of its own.
//!
//! Where a call does not end before the deadline, NCCL reports a failure, or the world has failed, all communicators of
//! the rank are cancelled together: then streams that wait for another rank continue, and the threads that wait for
//! them report the failure. Messages are submitted here, too: a send must not wait until its receiver has come.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use comm::{AbortCause, CommError, Operation, Timeouts, Transport};
use device::DeviceError;
use gpu::{DevicePointer, DriverError, EventHandle, Gpu, StreamHandle};
use mesh::Rank;
use nvidia::nccl::{CollectiveError, Communicator, Element, GroupId, Library, Progress};
use sync::lock;

use super::error::NcclError;

/// The time between two looks at what is under way.
const PAUSE: Duration = Duration::from_micros(500);
/// How long the world may take to name a lost rank whose end NCCL reports without a name.
const NAMING: Duration = Duration::from_secs(2);
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
}

/// A message in the queue of its stream.
struct QueuedMessage {
    from: DevicePointer,
    bytes: usize,
    /// The event after which it may be read.
    ready: EventHandle,
}

/// Messages to one rank, over a communicator of the two.
struct Outbox {
    id: GroupId,
    communicator: Option<Arc<Communicator>>,
    stream: StreamHandle,
    messages: VecDeque<QueuedMessage>,
    name: CallName,
}

#[derive(Default)]
struct State {
    communicators: Vec<Arc<Communicator>>,
    /// By stream, in order.
    calls: BTreeMap<u64, VecDeque<UnderWay>>,
    outboxes: Vec<Outbox>,
    /// Not in use.
    events: Vec<EventHandle>,
    failure: Option<NcclError>,
    is_cancelled: bool,
    is_ending: bool,
}

impl State {
    fn is_idle(&self) -> bool {
        self.calls.values().all(VecDeque::is_empty) && self.outboxes.iter().all(|outbox| outbox.messages.is_empty())
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
            std::thread::sleep(Duration::from_micros(20));
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
        let call = UnderWay { name, begun, ended, since: None };
        state.calls.entry(stream.0).or_default().push_back(call);
        drop(state);
        self.shared.changed.notify_all();
        Ok(())
    }

    /// A new place for messages to one rank: its number, and the name under which that rank comes.
    pub(super) fn outbox(&self, name: CallName) -> Result<(usize, GroupId), DeviceError> {
        let id = self.shared.library.group_id().map_err(|cause| self.failed(&name, cause))?;
        let stream = self.shared.gpu.create_urgent_stream();
        let stream = stream.map_err(crate::rank_streams::driver_error("create a stream"))?;
        let mut state = lock(&self.shared.state);
        state.outboxes.push(Outbox { id, communicator: None, stream, messages: VecDeque::new(), name });
        Ok((state.outboxes.len() - 1, id))
    }

    /// Sends memory once `stream` has come to this point, after all earlier messages of the outbox.
    pub(super) fn post(
        &self,
        outbox: usize,
        stream: StreamHandle,
        (from, bytes): (DevicePointer, usize),
    ) -> Result<(), DriverError> {
        let ready = self.begin(stream)?;
        if let Some(outbox) = lock(&self.shared.state).outboxes.get_mut(outbox) {
            outbox.messages.push_back(QueuedMessage { from, bytes, ready });
        }
        self.shared.changed.notify_all();
        Ok(())
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
            if !state.is_cancelled && !state.is_idle() {
                self.look(&mut state);
            }
            let waits = if state.is_idle() || state.is_cancelled { Duration::from_secs(1) } else { PAUSE };
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
        let outcome = self.look_at_calls(state).and_then(|()| self.serve(state));
        let Err(error) = outcome else { return };
        // A lost rank is named by the world.
        if matches!(error, NcclError::Late { .. }) || self.named_by_the_world().is_none() {
            self.transport.abort(AbortCause { rank: self.rank(), description: error.to_string() });
            state.failure = Some(error);
        }
        self.cancel(state);
    }

    fn look_at_calls(&self, state: &mut State) -> Result<(), NcclError> {
        let State { calls, events, communicators, outboxes, .. } = state;
        for calls in calls.values_mut() {
            while let Some(call) = calls.front_mut() {
                // A GPU that fails is reported by whoever waits for its streams.
                if self.gpu.is_reached(call.ended).unwrap_or(true) {
                    events.extend([call.begun, call.ended]);
                    calls.pop_front();
                    continue;
                }
                let has_begun = call.since.is_some() || self.gpu.is_reached(call.begun).unwrap_or(true);
                let since = if has_begun { *call.since.get_or_insert_with(Instant::now) } else { break };
                // A member that has not come is named first by the one that waits for it on the host.
                if since.elapsed() > self.wait() + NAMING.min(self.wait()) {
                    return Err(self.late(&call.name, since.elapsed()));
                }
                break;
            }
        }
        let under_way = calls.values().find_map(|calls| calls.front()).map(|call| &call.name);
        let name =
            under_way.or_else(|| outboxes.iter().find(|outbox| !outbox.messages.is_empty()).map(|known| &known.name));
        let Some(name) = name else { return Ok(()) };
        communicators.iter().try_for_each(|known| known.poll().map(|_| ())).map_err(|cause| self.failed(name, cause))
    }

    /// Submits messages whose receivers have come.
    fn serve(&self, state: &mut State) -> Result<(), NcclError> {
        let State { outboxes, communicators, events, .. } = state;
        for outbox in outboxes {
            let name = outbox.name.clone();
            let failed = |cause| self.failed(&name, cause);
            if outbox.messages.is_empty() {
                continue;
            }
            let communicator = match &outbox.communicator {
                Some(known) => Arc::clone(known),
                None => {
                    let begun = Communicator::begin(Arc::clone(&self.library), &*self.gpu, &[outbox.id], 2, 0);
                    let begun = Arc::new(begun.map_err(failed)?);
                    communicators.push(Arc::clone(&begun));
                    Arc::clone(outbox.communicator.insert(begun))
                }
            };
            while communicator.poll().map_err(failed)? == Progress::Done {
                let Some(QueuedMessage { from, bytes, ready }) = outbox.messages.pop_front() else { break };
                // A GPU that fails is reported by whoever waits for its streams.
                if self.gpu.wait(outbox.stream, ready).is_ok() {
                    communicator.send(from, (bytes, Element::Bytes), 1, outbox.stream).map_err(failed)?;
                }
                events.push(ready);
            }
        }
        Ok(())
    }

    /// Cancels everything, so that streams continue. The world has failed.
    fn cancel(&self, state: &mut State) {
        state.is_cancelled = true;
        // All are revoked before any is freed: its peers must not wait for one that is gone.
        for communicator in &state.communicators {
            let _ = communicator.revoke();
        }
        for communicator in &state.communicators {
            let _ = communicator.abort();
        }
        state.calls.clear();
        state.outboxes.iter_mut().for_each(|outbox| outbox.messages.clear());
    }

    /// Ends communicators in order where all ranks end theirs, and otherwise cancels them.
    fn end(&self, state: &mut State) {
        for outbox in &mut state.outboxes {
            let _ = self.gpu.synchronize(outbox.stream);
            outbox.communicator = None;
        }
        let started = Instant::now();
        let has_failed = || self.transport.failure().is_some() || started.elapsed() > ENDING;
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
            let _ = self.gpu.destroy_stream(outbox.stream);
        }
        for event in state.events.drain(..) {
            let _ = self.gpu.destroy_event(event);
        }
    }
}
