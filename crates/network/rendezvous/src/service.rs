//! The thread of the control channel: one for each process, however many peers it has. Process 0 has a connection to
//! each other process, which has one to process 0.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::{Events, Poll};
use sync::lock;

use crate::admission::{Admission, Arrival, LISTENER, Queue};
use crate::failure::{FailureReport, ProcessFailure};
use crate::frame::MAX_BYTES;
use crate::introduction::Directory;
use crate::link::{Flow, Link, Received};
use crate::listening::poll_once;
use crate::message::{Message, encode};
use crate::shared::{Ending, Shared, To};

/// Number of the waker among the sources of events.
pub(crate) const WAKER: usize = 0;
/// Heartbeats within the time after which silence is a failure.
const BEATS: u32 = 4;
/// Longest time without a look at the clocks.
const TICK: Duration = Duration::from_millis(100);
/// Bytes that are read before their messages are handled.
const READ_BYTES: usize = 256 << 10;
/// Time for the last messages of a process that ends at once.
const FAREWELL: Duration = Duration::from_millis(500);

/// The other end of a connection.
#[derive(Debug)]
pub(crate) struct Peer {
    process: usize,
    link: Link,
    last_message: Instant,
    has_left: bool,
}

impl Peer {
    pub(crate) fn new(process: usize, link: Link) -> Peer {
        Peer { process, link, last_message: Instant::now(), has_left: false }
    }
}

/// The state of the thread.
pub(crate) struct Service {
    pub(crate) directory: Directory,
    pub(crate) process: usize,
    /// By number among the sources of events.
    pub(crate) peers: BTreeMap<usize, Peer>,
    /// Of process 0: it answers those that come too late.
    pub(crate) admission: Option<Admission>,
    pub(crate) poll: Poll,
    pub(crate) heartbeat: Duration,
    pub(crate) shared: Arc<Shared>,
}

impl Service {
    /// Serves until the process ends its part.
    pub(crate) fn run(mut self) {
        if let Err(error) = self.serve() {
            self.fail(self.process, format!("its control channel failed: {error}"));
        }
        lock(&self.shared.state).is_over = true;
        self.shared.changed.notify_all();
    }

    fn serve(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(256);
        let (mut beaten, mut looked) = (Instant::now(), Instant::now());
        let mut until: Option<Instant> = None;
        let mut queue = Queue::Empty;
        // Messages may have come together with the directory.
        let all: Vec<usize> = self.peers.keys().copied().collect();
        all.into_iter().for_each(|id| self.ready(id));
        loop {
            self.note_awaited();
            self.send();
            if self.is_done(&mut until) {
                return Ok(());
            }
            let pause = if queue == Queue::Waiting { Duration::ZERO } else { TICK.min(self.heartbeat / BEATS) };
            poll_once(&mut self.poll, &mut events, pause)?;
            let now = Instant::now();
            if now.duration_since(looked) > self.heartbeat / 2 {
                // This process itself was stopped or starved; its peers have the whole time again.
                self.peers.values_mut().for_each(|peer| peer.last_message = now);
            }
            looked = now;
            for event in &events {
                match event.token().0 {
                    WAKER | LISTENER => {}
                    id if self.peers.contains_key(&id) => self.ready(id),
                    id => self.turn_away(id),
                }
            }
            if let Some(admission) = &mut self.admission {
                queue = admission.accept(self.poll.registry(), now);
            }
            if now.duration_since(beaten) >= self.heartbeat / BEATS {
                beaten = now;
                self.queue_to_all(&Message::Heartbeat, None);
            }
            self.find_silent(now);
        }
    }

    /// Reads from a peer and does what it says.
    fn ready(&mut self, id: usize) {
        loop {
            let Some(peer) = self.peers.get_mut(&id) else { return };
            let process = peer.process;
            let flow = peer.link.read(READ_BYTES);
            match peer.link.receive(MAX_BYTES) {
                Ok(Received { messages, records }) => {
                    if records > 0 {
                        peer.last_message = Instant::now();
                    }
                    messages.into_iter().for_each(|message| self.handle(id, process, message));
                }
                Err(error) => {
                    self.fail(process, format!("the control channel cannot be understood: {error}"));
                    // The peer hears the reason first; where its connection takes no more, the end of it has to do.
                    if let Some(peer) = self.peers.get_mut(&id) {
                        let _ = peer.link.flush();
                    }
                    return self.drop_peer(id);
                }
            }
            match flow {
                Ok(Flow::Full) => {}
                Ok(Flow::Open) => return,
                Ok(Flow::Closed) => return self.ended(id, "its connection was closed: it was killed or has crashed"),
                Err(error) => return self.ended(id, &format!("its connection failed: {error}")),
            }
        }
    }

    fn handle(&mut self, id: usize, process: usize, message: Message) {
        match message {
            Message::Heartbeat => {}
            Message::Failure(failure) => {
                if self.shared.note_failure(&failure) && self.process == 0 {
                    self.queue_to_all(&Message::Failure(failure), Some(id));
                } else if self.process != 0 {
                    // The answer: this process lives.
                    self.queue_to_all(&Message::Heartbeat, None);
                }
            }
            Message::Stop(stop_signal) => {
                if self.shared.note_stop(&stop_signal) && self.process == 0 {
                    self.queue_to_all(&Message::Stop(stop_signal), Some(id));
                }
            }
            Message::Goodbye => {
                if let Some(peer) = self.peers.get_mut(&id) {
                    peer.has_left = true;
                    if self.process == 0 {
                        peer.link.queue(encode(&Message::Goodbye).into());
                    }
                }
                lock(&self.shared.state).left.insert(process);
                self.shared.changed.notify_all();
            }
            Message::Parcel { topic, bytes } => {
                lock(&self.shared.state).inbox.entry((topic, process)).or_default().push_back(bytes);
                self.shared.changed.notify_all();
            }
            Message::Introduction(_) | Message::Directory(_) | Message::Refusal(_) => {
                self.fail(process, "it introduced itself twice".into());
            }
        }
    }

    /// The connection of a peer has ended.
    fn ended(&mut self, id: usize, cause: &str) {
        if let Some(peer) = self.peers.get(&id) {
            let (process, has_left) = (peer.process, peer.has_left);
            if !has_left && lock(&self.shared.state).ending != Ending::Goodbye {
                self.fail(process, cause.into());
            } else {
                lock(&self.shared.state).left.insert(process);
                self.shared.changed.notify_all();
            }
        }
        self.drop_peer(id);
    }

    fn drop_peer(&mut self, id: usize) {
        if let Some(mut peer) = self.peers.remove(&id) {
            peer.link.deregister(self.poll.registry());
        }
    }

    /// Answers a process that comes after the start of the run.
    fn turn_away(&mut self, id: usize) {
        let Some(Arrival { mut link, introduction }) = self.admission.as_mut().and_then(|all| all.ready(id)) else {
            return;
        };
        let number = self.directory.processes.len();
        let reason = match introduction {
            Ok(introduction) => format!(
                "{} is too late: the run has started with all of its {number} processes; start each number once",
                introduction.entry.named()
            ),
            Err(reason) => reason,
        };
        link.queue(encode(&Message::Refusal(vec![reason])).into());
        // The answer is short; a connection that does not take it at once is closed without.
        let _ = link.flush();
        link.deregister(self.poll.registry());
    }

    /// Takes the messages of the run and gives the system as much as it takes.
    fn send(&mut self) {
        let outbox = std::mem::take(&mut lock(&self.shared.state).outbox);
        outbox.iter().for_each(|(to, message)| match to {
            To::All => self.queue_to_all(message, None),
            To::One(process) => self.queue_to_one(message, *process),
        });
        let mut broken = vec![];
        for (id, peer) in &mut self.peers {
            if let Err(error) = peer.link.flush() {
                broken.push((*id, error.to_string()));
            }
        }
        for (id, error) in broken {
            // A failure that the peer sent before its end names the cause.
            self.ready(id);
            self.ended(id, &format!("its connection failed: {error}"));
        }
        let is_flushed = self.peers.values().all(|peer| peer.link.is_flushed());
        let mut state = lock(&self.shared.state);
        state.is_flushed = is_flushed && state.outbox.is_empty();
        drop(state);
        self.shared.changed.notify_all();
    }

    fn queue_to_one(&mut self, message: &Message, process: usize) {
        let peer = self.peers.values_mut().find(|peer| peer.process == process && !peer.has_left);
        if let Some(peer) = peer {
            peer.link.queue(encode(message).into());
        }
    }

    fn queue_to_all(&mut self, message: &Message, except: Option<usize>) {
        let bytes: Arc<[u8]> = encode(message).into();
        let others = self.peers.iter_mut().filter(|(id, peer)| Some(**id) != except && !peer.has_left);
        others.for_each(|(_, peer)| peer.link.queue(Arc::clone(&bytes)));
    }

    /// A peer without a sign of life is as bad as one that ended.
    fn find_silent(&mut self, now: Instant) {
        let is_silent = |peer: &&Peer| !peer.has_left && now.duration_since(peer.last_message) > self.heartbeat;
        let silent: Vec<usize> = self.peers.values().filter(is_silent).map(|peer| peer.process).collect();
        for process in silent {
            let cause = format!(
                "it has been silent for {:?}: the process is stopped, or its host or the network is down; raise \
                 run.heartbeat_seconds if it was only slow",
                self.heartbeat
            );
            self.fail(process, cause);
        }
    }

    /// Notes which processes have not answered since process 0 has passed a failure on, apart from the one that failed;
    /// on other processes, whether process 0 is still there.
    fn note_awaited(&mut self) {
        let mut state = lock(&self.shared.state);
        let Some(failed) = state.failure.as_ref().map(|failure| failure.process) else { return };
        let since = state.awaited.as_ref().map_or_else(Instant::now, |(since, _)| *since);
        let is_awaited = |peer: &&Peer| match self.process {
            0 => !peer.has_left && peer.process != failed && peer.last_message < since,
            _ => true,
        };
        let awaited = self.peers.values().filter(is_awaited).map(|peer| peer.process).collect();
        state.awaited = Some((since, awaited));
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Notes that `process` failed. Process 0 repeats it to all; others report it to process 0.
    fn fail(&mut self, process: usize, cause: String) {
        let host = self.directory.processes.get(process).map_or(String::new(), |entry| entry.host.clone());
        let failure = ProcessFailure { process, host, report: FailureReport { cause, ..FailureReport::default() } };
        if self.shared.note_failure(&failure) {
            self.queue_to_all(&Message::Failure(failure), None);
        }
    }

    /// Whether the thread may end. `until` is the time by which it does so, once the process ends at once.
    fn is_done(&mut self, until: &mut Option<Instant>) -> bool {
        let (ending, is_taken) = {
            let state = lock(&self.shared.state);
            (state.ending, state.outbox.is_empty())
        };
        // A goodbye that came after the last look at the outbox is not with any peer yet.
        let is_flushed = is_taken && self.peers.values().all(|peer| peer.link.is_flushed());
        match ending {
            Ending::Not => false,
            // Process 0 waits for all others, which wait for its end of the connection.
            Ending::Goodbye if self.process == 0 => is_flushed && self.peers.values().all(|peer| peer.has_left),
            Ending::Goodbye => {
                if is_flushed {
                    self.peers.values().for_each(|peer| peer.link.end_sending());
                }
                self.peers.is_empty()
            }
            Ending::AtOnce => {
                let until = *until.get_or_insert_with(|| Instant::now() + FAREWELL);
                is_flushed || Instant::now() >= until
            }
        }
    }
}
