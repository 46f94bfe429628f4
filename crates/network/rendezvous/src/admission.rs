//! Connections to process 0 before their process is known. They have a fixed number of bytes here, and nothing of them
//! is parsed, before their proof is right; their number and lifetime are bounded.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use mio::net::TcpListener;
use mio::{Interest, Poll, Registry};
use session::{Challenged, GREETING_BYTES, HandshakeError, PROOF_BYTES, Service, unproven_greeting};

use crate::frame::MAX_INTRODUCTION_BYTES;
use crate::introduction::Introduction;
use crate::link::{Flow, Link};
use crate::message::Message;
use crate::rejections::{Rejection, Rejections};
use crate::token::Token;

/// Connections without a process at one time, apart from one of each process. A newer one takes the place of an older
/// one.
const MAX_UNPROVEN: usize = 128;
/// Connections that are accepted before those that are there are read.
const ACCEPTED_AT_ONCE: usize = 32;
/// Time in which a connection must prove that it holds the token, and introduce its process.
const LIFETIME: Duration = Duration::from_secs(3);
/// Bytes of an introduction that are read at once, and those of a process of another version that are read and not
/// used: a connection that is closed with unread bytes loses its answer.
const READ_BYTES: usize = 64 << 10;
/// Number of the listener among the sources of events.
pub(crate) const LISTENER: usize = 1;
/// First number of a connection.
const FIRST_LINK: usize = 2;

/// The listener of process 0, and connections whose process is not known yet.
#[derive(Debug)]
pub(crate) struct Admission {
    listener: TcpListener,
    token: Token,
    /// Most connections at one time.
    limit: usize,
    joining: BTreeMap<usize, JoiningConnection>,
    next: usize,
    rejections: Rejections,
}

#[derive(Debug)]
struct JoiningConnection {
    link: Link,
    since: Instant,
    from: IpAddr,
    stage: Stage,
}

/// The bytes that are due on a connection.
#[derive(Debug)]
enum Stage {
    Greeting,
    Proof(Challenged),
    Introduction,
}

/// The state of a connection after a read.
enum Progress {
    /// It may send more.
    Waits,
    /// It has passed a stage, and may have sent more.
    Passed,
    /// It is not of the run, or has gone.
    Gone(Option<Rejection>),
    /// It has introduced itself, or cannot be understood.
    Arrived(Result<Introduction, String>),
}

/// Whether connections may still wait in the queue of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    /// None waits.
    Empty,
    /// Some may wait: the next turn comes at once.
    Waiting,
}

/// A connection whose process is known, or that has the token and cannot be understood.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) link: Link,
    pub(crate) introduction: Result<Introduction, String>,
}

impl Admission {
    /// Receives a run of `processes`.
    pub(crate) fn new(listener: TcpListener, token: Token, processes: usize) -> Admission {
        let (limit, rejections) = (MAX_UNPROVEN.saturating_add(processes), Rejections::default());
        Admission { listener, token, limit, joining: BTreeMap::new(), next: FIRST_LINK, rejections }
    }

    pub(crate) fn register(&mut self, poll: &Poll) -> io::Result<()> {
        poll.registry().register(&mut self.listener, mio::Token(LISTENER), Interest::READABLE)
    }

    /// Connections that were not of the run.
    pub(crate) fn rejections(&self) -> &Rejections {
        &self.rejections
    }

    /// Accepts some of the waiting connections, and drops those whose time is over.
    pub(crate) fn accept(&mut self, registry: &Registry, now: Instant) -> Queue {
        self.joining.retain(|_, connection| now.duration_since(connection.since) < LIFETIME);
        for _ in 0..ACCEPTED_AT_ONCE {
            let (stream, from) = match self.listener.accept() {
                Ok(accepted) => accepted,
                // No more of them, one that ended before it was accepted, or no more files for now: the next turn tries
                // again.
                Err(_) => return Queue::Empty,
            };
            self.make_room();
            // Without it small messages wait for an acknowledgement of earlier ones.
            let _ = stream.set_nodelay(true);
            let mut link = Link::new(stream);
            let id = self.next;
            self.next += 1;
            if link.register(registry, id).is_err() {
                continue;
            }
            self.joining.insert(id, JoiningConnection { link, since: now, from: from.ip(), stage: Stage::Greeting });
        }
        Queue::Waiting
    }

    /// Drops a connection without a proof if there are too many.
    fn make_room(&mut self) {
        if self.joining.len() < self.limit {
            return;
        }
        let unknown = self.joining.iter().filter(|(_, connection)| !matches!(connection.stage, Stage::Introduction));
        if let Some(first) = session::first_to_go(unknown.map(|(id, connection)| (*id, connection.from))) {
            self.joining.remove(&first);
        }
    }

    /// Reads from connection `id`. Returns it once its process is known; a connection with a wrong proof is closed.
    pub(crate) fn ready(&mut self, id: usize) -> Option<Arrival> {
        let connection = self.joining.get_mut(&id)?;
        let introduction = loop {
            match connection.proceed(&self.token) {
                Progress::Passed => {}
                Progress::Waits => return None,
                Progress::Gone(rejection) => {
                    rejection.into_iter().for_each(|rejection| self.rejections.note(rejection, connection.from));
                    self.joining.remove(&id);
                    return None;
                }
                Progress::Arrived(introduction) => break introduction,
            }
        };
        let JoiningConnection { link, from, .. } = self.joining.remove(&id)?;
        let introduction = introduction.map_err(|reason| format!("a process at {from} cannot be understood: {reason}"));
        Some(Arrival { link, introduction })
    }
}

impl JoiningConnection {
    /// Reads what is due.
    fn proceed(&mut self, token: &Token) -> Progress {
        match &self.stage {
            Stage::Greeting => {
                let flow = self.link.read(GREETING_BYTES);
                match self.link.take() {
                    Some(greeting) => self.greet(token, &greeting),
                    None => waits_or_gone(flow, None),
                }
            }
            Stage::Proof(challenged) => {
                let flow = self.link.read(PROOF_BYTES);
                let Some(proof) = self.link.take::<PROOF_BYTES>() else {
                    return waits_or_gone(flow, Some(Rejection::OtherToken));
                };
                let Ok(session) = challenged.admit(&proof) else { return Progress::Gone(Some(Rejection::OtherToken)) };
                self.link.secure(session);
                self.stage = Stage::Introduction;
                Progress::Passed
            }
            Stage::Introduction => {
                let flow = self.link.read(READ_BYTES);
                match self.link.receive(MAX_INTRODUCTION_BYTES).map(|received| received.messages.into_iter().next()) {
                    Ok(None) if matches!(flow, Ok(Flow::Full)) => Progress::Passed,
                    Ok(None) => waits_or_gone(flow, None),
                    Ok(Some(Message::Introduction(introduction))) => Progress::Arrived(Ok(introduction)),
                    Ok(Some(_)) => Progress::Arrived(Err("it did not introduce itself".into())),
                    Err(error) => Progress::Arrived(Err(error.to_string())),
                }
            }
        }
    }

    /// Answers a greeting.
    fn greet(&mut self, token: &Token, greeting: &[u8; GREETING_BYTES]) -> Progress {
        match Challenged::new(token.secret(), Service::Meeting, greeting) {
            Ok(challenged) if self.link.send_first(&challenged.challenge()).is_ok() => {
                self.stage = Stage::Proof(challenged);
                Progress::Passed
            }
            Ok(_) | Err(HandshakeError::Random) => Progress::Gone(None),
            Err(HandshakeError::Version(version)) => {
                // It reads the version of this process, or is gone.
                let _ = self.link.read(READ_BYTES);
                let _ = self.link.send_first(&unproven_greeting(Service::Meeting));
                Progress::Gone(Some(Rejection::OtherVersion(version)))
            }
            Err(HandshakeError::Magic | HandshakeError::Service | HandshakeError::Proof) => {
                Progress::Gone(Some(Rejection::Foreign))
            }
        }
    }
}

fn waits_or_gone(flow: io::Result<Flow>, rejection: Option<Rejection>) -> Progress {
    match flow {
        Ok(Flow::Open | Flow::Full) => Progress::Waits,
        Ok(Flow::Closed) | Err(_) => Progress::Gone(rejection),
    }
}
