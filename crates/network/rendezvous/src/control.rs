//! The control channel as the run sees it.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use mio::{Poll, Waker};
use sync::{lock, wait_timeout};

use crate::Times;
use crate::admission::Admission;
use crate::error::ControlError;
use crate::failure::{FailureReport, ProcessFailure, StopSignal};
use crate::frame::MAX_BYTES;
use crate::introduction::{Directory, ProcessEntry};
use crate::message::Message;
use crate::service::{Peer, Service, WAKER};
use crate::shared::{Ending, Shared, State, To};

/// Longest name of a message, in bytes.
const MAX_TOPIC: usize = 64;
/// Time in which a report is passed to the system.
const REPORTED: Duration = Duration::from_millis(500);

/// One process's end of the control channel. Dropping it without [`Control::finish`] is a failure of this process,
/// which all others hear within a second.
pub struct Control {
    directory: Directory,
    process: usize,
    shared: Arc<Shared>,
    /// None in a run of one process.
    service: Option<Thread>,
}

struct Thread {
    waker: Waker,
    handle: JoinHandle<()>,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Control of process {} of {}", self.process, self.directory.processes.len())
    }
}

impl Control {
    /// The channel of a run of one process.
    pub fn alone(entry: ProcessEntry) -> Control {
        let directory = Directory { processes: vec![ProcessEntry { process: 0, ..entry }], run: String::new() };
        Control { directory, process: 0, shared: Arc::default(), service: None }
    }

    /// Starts the thread.
    pub(crate) fn serve(
        directory: Directory,
        process: usize,
        peers: BTreeMap<usize, Peer>,
        admission: Option<Admission>,
        poll: Poll,
        times: Times,
    ) -> io::Result<Control> {
        let shared: Arc<Shared> = Arc::default();
        let waker = Waker::new(poll.registry(), mio::Token(WAKER))?;
        let service = Service {
            directory: directory.clone(),
            process,
            peers,
            admission,
            poll,
            heartbeat: times.heartbeat,
            shared: Arc::clone(&shared),
        };
        let handle = Builder::new().name("control".into()).spawn(move || service.run())?;
        Ok(Control { directory, process, shared, service: Some(Thread { waker, handle }) })
    }

    /// All processes of the run.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Number of this process.
    pub fn process(&self) -> usize {
        self.process
    }

    /// Reports a failure in this process; all others hear it. The first failure of the run counts. Returns once the
    /// report is on its way, so that the process may end.
    pub fn report(&self, report: FailureReport) {
        let failure = ProcessFailure { process: self.process, host: self.host(self.process), report };
        if self.shared.note_failure(&failure) {
            self.send(To::All, Message::Failure(failure));
        }
        self.wait_for_flush();
    }

    /// The failure that ended the run, if it failed.
    pub fn failure(&self) -> Option<ProcessFailure> {
        lock(&self.shared.state).failure.clone()
    }

    /// On process 0, the processes that have given no sign of life since the run has failed, apart from the one that
    /// failed: they are stopped, or their host or the network is down. It waits until all have answered, at most until
    /// `limit` after the failure. Other processes wait in the same way until process 0 has ended, which is what they
    /// return otherwise: a launcher that ends all others with the first does not end process 0 before it has named
    /// them.
    pub fn unanswered(&self, limit: Duration) -> Vec<&ProcessEntry> {
        if self.service.is_none() {
            return vec![];
        }
        let mut state = lock(&self.shared.state);
        while state.failure.is_some() && !state.is_over {
            let left = match &state.awaited {
                Some((_, awaited)) if awaited.is_empty() => break,
                Some((since, _)) => limit.saturating_sub(since.elapsed()),
                None => limit,
            };
            if left.is_zero() {
                break;
            }
            state = wait_timeout(&self.shared.changed, state, left);
        }
        let awaited = state.awaited.iter().flat_map(|(_, awaited)| awaited);
        awaited.filter_map(|process| self.directory.processes.get(*process)).collect()
    }

    /// Calls `callback` once when the run fails, on the thread that notices; at once if it has failed.
    pub fn on_failure(&self, callback: impl FnOnce(&ProcessFailure) + Send + 'static) {
        let failure = {
            let mut state = lock(&self.shared.state);
            match &state.failure {
                Some(failure) => failure.clone(),
                None => return state.callbacks.push(Box::new(callback)),
            }
        };
        callback(&failure);
    }

    /// Tells all processes that a signal reached this one and the run is to stop. Returns once the message is on its
    /// way, so that the process may end.
    pub fn stop(&self, signal: i32) {
        let stop_signal = StopSignal { process: self.process, host: self.host(self.process), signal };
        if self.shared.note_stop(&stop_signal) {
            self.send(To::All, Message::Stop(stop_signal));
        }
        self.wait_for_flush();
    }

    /// The first signal that reached any process.
    pub fn stop_signal(&self) -> Option<StopSignal> {
        lock(&self.shared.state).stop.clone()
    }

    /// The `bytes` of all processes by number, on process 0; `None` on the others, which do not wait.
    ///
    /// # Errors
    /// See [`ControlError`].
    pub fn gather(
        &self,
        topic: &str,
        bytes: Vec<u8>,
        deadline: Duration,
    ) -> Result<Option<Vec<Vec<u8>>>, ControlError> {
        check_size(topic, &bytes)?;
        if self.process != 0 {
            self.send(To::All, Message::Parcel { topic: topic.into(), bytes });
            return Ok(None);
        }
        let mut all = vec![bytes];
        let until = Instant::now() + deadline;
        for process in 1..self.directory.processes.len() {
            all.push(self.take(topic, process, deadline, until)?);
        }
        Ok(Some(all))
    }

    /// The bytes of process 0, on every process. Those that the others give are ignored.
    ///
    /// # Errors
    /// See [`ControlError`].
    pub fn broadcast(&self, topic: &str, bytes: Vec<u8>, deadline: Duration) -> Result<Vec<u8>, ControlError> {
        if self.process != 0 {
            return self.take(topic, 0, deadline, Instant::now() + deadline);
        }
        check_size(topic, &bytes)?;
        self.send(To::All, Message::Parcel { topic: topic.into(), bytes: bytes.clone() });
        Ok(bytes)
    }

    /// Returns once all processes have called it.
    ///
    /// # Errors
    /// See [`ControlError`].
    pub fn barrier(&self, topic: &str, deadline: Duration) -> Result<(), ControlError> {
        self.gather(topic, vec![], deadline)?;
        self.broadcast(topic, vec![], deadline).map(drop)
    }

    /// Sends `bytes` to process 0, which takes them by [`Control::receive`]. Does not wait.
    ///
    /// # Errors
    /// More bytes than a message has.
    pub fn send_to_first(&self, topic: &str, bytes: Vec<u8>) -> Result<(), ControlError> {
        check_size(topic, &bytes)?;
        if self.process == 0 {
            lock(&self.shared.state).inbox.entry((topic.into(), 0)).or_default().push_back(bytes);
            self.shared.changed.notify_all();
        } else {
            self.send(To::All, Message::Parcel { topic: topic.into(), bytes });
        }
        Ok(())
    }

    /// Sends `bytes` from process 0 to `process` alone, which takes them by [`Control::receive`]. Does not wait.
    /// Another process reaches process 0 only.
    ///
    /// # Errors
    /// More bytes than a message has.
    pub fn send_to(&self, process: usize, topic: &str, bytes: Vec<u8>) -> Result<(), ControlError> {
        check_size(topic, &bytes)?;
        self.send(To::One(process), Message::Parcel { topic: topic.into(), bytes });
        Ok(())
    }

    /// The next bytes of any process under `topic`, with the number of the process; `None` where none came within
    /// `timeout`.
    ///
    /// # Errors
    /// [`ControlError::Failed`].
    pub fn receive(&self, topic: &str, timeout: Duration) -> Result<Option<(usize, Vec<u8>)>, ControlError> {
        let until = Instant::now() + timeout;
        let mut state = lock(&self.shared.state);
        loop {
            let first = state.inbox.iter_mut().find(|((own, _), parcels)| own == topic && !parcels.is_empty());
            if let Some(((_, process), parcels)) = first {
                let process = *process;
                return Ok(parcels.pop_front().map(|bytes| (process, bytes)));
            }
            if let Some(failure) = &state.failure {
                return Err(ControlError::Failed(failure.clone()));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            state = wait_timeout(&self.shared.changed, state, left);
        }
    }

    /// Ends this process's part without a failure. Process 0 returns once all others have ended theirs.
    ///
    /// # Errors
    /// A failure of the run, or a process that does not end within `deadline`.
    pub fn finish(mut self, deadline: Duration) -> Result<(), ControlError> {
        let Some(thread) = self.service.take() else { return Ok(()) };
        let until = Instant::now() + deadline;
        {
            let mut state = lock(&self.shared.state);
            if self.process != 0 {
                state.outbox.push((To::All, Message::Goodbye));
            }
            state.ending = Ending::Goodbye;
        }
        let _ = thread.waker.wake();
        let mut state = lock(&self.shared.state);
        while !state.is_over && state.failure.is_none() && Instant::now() < until {
            let left = until.saturating_duration_since(Instant::now());
            state = wait_timeout(&self.shared.changed, state, left);
        }
        let ended = match (&state.failure, state.is_over) {
            (Some(failure), _) => Err(ControlError::Failed(failure.clone())),
            (None, true) => Ok(()),
            (None, false) => Err(ControlError::Deadline {
                topic: "the end of the run".into(),
                missing: self.awaited(&state),
                waited: deadline,
            }),
        };
        state.ending = Ending::AtOnce;
        drop(state);
        join(thread);
        ended
    }

    fn awaited(&self, state: &State) -> String {
        let others = (0..self.directory.processes.len()).filter(|process| *process != self.process);
        let missing = others.filter(|process| !state.left.contains(process));
        let first = missing.map(|process| self.directory.named(process)).next();
        first.unwrap_or_else(|| "another process".into())
    }

    /// The next bytes of `process` under `topic`, which it sent with [`Control::send_to_first`] or
    /// [`Control::send_to`].
    ///
    /// # Errors
    /// See [`ControlError`].
    pub fn receive_from(&self, process: usize, topic: &str, deadline: Duration) -> Result<Vec<u8>, ControlError> {
        self.take(topic, process, deadline, Instant::now() + deadline)
    }

    /// The next bytes of `process` under `topic`.
    fn take(&self, topic: &str, process: usize, waited: Duration, until: Instant) -> Result<Vec<u8>, ControlError> {
        let key = (topic.to_string(), process);
        let mut state = lock(&self.shared.state);
        loop {
            if let Some(bytes) = state.inbox.get_mut(&key).and_then(std::collections::VecDeque::pop_front) {
                return Ok(bytes);
            }
            if let Some(failure) = &state.failure {
                return Err(ControlError::Failed(failure.clone()));
            }
            let named = || self.directory.named(process);
            if state.left.contains(&process) {
                return Err(ControlError::Left { topic: topic.into(), process: named() });
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ControlError::Deadline { topic: topic.into(), missing: named(), waited });
            }
            state = wait_timeout(&self.shared.changed, state, left);
        }
    }

    fn send(&self, to: To, message: Message) {
        let Some(thread) = &self.service else { return };
        {
            let mut state = lock(&self.shared.state);
            state.is_flushed = false;
            state.outbox.push((to, message));
        }
        // The thread looks by itself, too, only later.
        let _ = thread.waker.wake();
    }

    fn wait_for_flush(&self) {
        if self.service.is_none() {
            return;
        }
        let until = Instant::now() + REPORTED;
        let mut state = lock(&self.shared.state);
        loop {
            let is_sent = state.is_flushed && state.outbox.is_empty();
            if is_sent || state.is_over || Instant::now() >= until {
                return;
            }
            let left = until.saturating_duration_since(Instant::now());
            state = wait_timeout(&self.shared.changed, state, left);
        }
    }

    fn host(&self, process: usize) -> String {
        self.directory.processes.get(process).map_or(String::new(), |entry| entry.host.clone())
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let Some(thread) = self.service.take() else { return };
        lock(&self.shared.state).ending = Ending::AtOnce;
        join(thread);
    }
}

fn join(thread: Thread) {
    let _ = thread.waker.wake();
    // A panic of the thread has printed its message; the channel is closed either way.
    let _ = thread.handle.join();
}

fn check_size(topic: &str, bytes: &[u8]) -> Result<(), ControlError> {
    let limit = MAX_BYTES - 1 - MAX_TOPIC;
    let (length, limit) = if topic.len() > MAX_TOPIC { (topic.len(), MAX_TOPIC) } else { (bytes.len(), limit) };
    match length > limit {
        true => Err(ControlError::TooLarge { topic: topic.into(), bytes: length, limit }),
        false => Ok(()),
    }
}
