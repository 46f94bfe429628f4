//! The other processes before the run: they connect to process 0, introduce themselves and wait for its answer.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{TcpStream, ToSocketAddrs};
use std::thread::sleep;
use std::time::{Duration, Instant};

use launcher::Address;
use mio::Poll;
use session::{HandshakeError, Service};

use crate::Times;
use crate::control::Control;
use crate::error::RendezvousError;
use crate::frame::{FrameError, MAX_INTRODUCTION_BYTES};
use crate::introduction::{Directory, Introduction};
use crate::listening::Listening;
use crate::message::Message;
use crate::sealed_stream::{SealedStream, StreamError};
use crate::service::Peer;
use crate::token::Token;

/// Longest time between two attempts to reach process 0.
const RETRY: Duration = Duration::from_millis(100);
/// Longest time of one attempt.
const ATTEMPT: Duration = Duration::from_secs(2);
/// Times after which a process whose connection was closed without a proof tries again.
const PAUSES: [Duration; 4] =
    [Duration::from_millis(50), Duration::from_millis(100), Duration::from_millis(200), Duration::from_millis(400)];
/// Time that process 0 may take for its answer after its deadline.
const ANSWER: Duration = Duration::from_secs(2);
/// A directory has an entry for each process.
const MAX_DIRECTORY_BYTES: usize = 64 * MAX_INTRODUCTION_BYTES;
/// Number of the connection among the sources of events.
const TO_FIRST: usize = 2;

/// Meets the other processes at `address`: process 0 listens there, all others connect. A run of one process meets
/// nobody.
///
/// # Errors
/// See [`RendezvousError`].
pub fn meet(
    address: Option<&Address>,
    token: &Token,
    own: Introduction,
    times: Times,
) -> Result<Control, RendezvousError> {
    match (address, own.processes, own.entry.process) {
        (None, _, _) | (Some(_), 0 | 1, _) => Ok(Control::alone(own.entry)),
        (Some(address), _, 0) => Listening::bind(address)?.meet(token, own, times),
        (Some(address), _, _) => join(address, token, &own, times),
    }
}

/// Joins the run whose process 0 listens at `address`.
fn join(address: &Address, token: &Token, own: &Introduction, times: Times) -> Result<Control, RendezvousError> {
    let process = own.entry.process;
    let mut stream = connect(address, process, times.rendezvous)?;
    let until = Instant::now() + times.rendezvous + ANSWER;
    let mut pauses = PAUSES.into_iter();
    let (answer, stream) = loop {
        let address = || address.clone();
        // Many connections of others at the same time may have displaced this one.
        let (failure, pause) = match introduce(stream, token, own, until) {
            Ok(answered) => break answered,
            Err(Unanswered::Malformed(FrameError::Handshake(HandshakeError::Proof))) => {
                return Err(RendezvousError::WrongProof { process, address: address() });
            }
            Err(Unanswered::Malformed(error)) => {
                return Err(RendezvousError::Malformed { process, address: address(), error });
            }
            Err(Unanswered::Unproven(error)) => {
                (RendezvousError::NoProof { process, address: address(), reason: reason(&error) }, pauses.next())
            }
            Err(Unanswered::Proven(error)) => {
                (RendezvousError::NoAnswer { process, address: address(), reason: reason(&error) }, Some(RETRY))
            }
        };
        let Some(pause) = pause.filter(|_| Instant::now() < until) else { return Err(failure) };
        sleep(pause);
        stream = attempt(&address(), ATTEMPT).map_err(|_| failure)?;
    };
    match answer {
        Answer::Refusal(reasons) => Err(RendezvousError::Refused(reasons)),
        Answer::Directory(directory) => {
            let poll = Poll::new()?;
            let mut link = stream.into_link()?;
            link.register(poll.registry(), TO_FIRST)?;
            let peers = BTreeMap::from([(TO_FIRST, Peer::new(0, link))]);
            Ok(Control::serve(directory, process, peers, None, poll, times)?)
        }
    }
}

/// The answer of process 0.
enum Answer {
    Directory(Directory),
    Refusal(Vec<String>),
}

/// Why there is no answer.
enum Unanswered {
    /// The connection ended, or time is up, before the other end had proven to hold the token.
    Unproven(io::Error),
    /// The same, after it had: it is process 0.
    Proven(io::Error),
    /// The bytes are not those of process 0.
    Malformed(FrameError),
}

/// Introduces this process; returns the answer.
fn introduce(
    stream: TcpStream,
    token: &Token,
    own: &Introduction,
    until: Instant,
) -> Result<(Answer, SealedStream), Unanswered> {
    let mut stream = SealedStream::connect(stream, token, Service::Meeting, until).map_err(|error| match error {
        StreamError::Ended(error) => Unanswered::Unproven(error),
        StreamError::Malformed(error) => Unanswered::Malformed(error),
    })?;
    stream.send(&Message::Introduction(own.clone())).map_err(Unanswered::Proven)?;
    loop {
        let message = stream.receive(MAX_DIRECTORY_BYTES, Some(until)).map_err(|error| match error {
            StreamError::Ended(error) => Unanswered::Proven(error),
            StreamError::Malformed(error) => Unanswered::Malformed(error),
        })?;
        match message {
            Message::Refusal(reasons) => return Ok((Answer::Refusal(reasons), stream)),
            Message::Directory(directory) => return Ok((Answer::Directory(directory), stream)),
            Message::Introduction(_)
            | Message::Heartbeat
            | Message::Failure(_)
            | Message::Stop(_)
            | Message::Goodbye
            | Message::Parcel { .. } => {}
        }
    }
}

fn reason(error: &io::Error) -> String {
    let is = |kinds: &[ErrorKind]| kinds.contains(&error.kind());
    if is(&[ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset, ErrorKind::BrokenPipe]) {
        return "it closed the connection".into();
    }
    if is(&[ErrorKind::WouldBlock, ErrorKind::TimedOut]) { "it is silent".into() } else { error.to_string() }
}

/// A connection to process 0, which may start later and whose name may become known later.
fn connect(address: &Address, process: usize, deadline: Duration) -> Result<TcpStream, RendezvousError> {
    let until = Instant::now() + deadline;
    let mut pause = Duration::from_millis(5);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let reason = match attempt(address, left.min(ATTEMPT)) {
            Ok(stream) => return Ok(stream),
            Err(error) => error.to_string(),
        };
        if Instant::now() + pause >= until {
            return Err(RendezvousError::NotListening { process, address: address.clone(), waited: deadline, reason });
        }
        sleep(pause);
        pause = (pause * 2).min(RETRY);
    }
}

fn attempt(address: &Address, limit: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(ErrorKind::NotFound, "the host has no address");
    for candidate in (address.host.as_str(), address.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&candidate, limit.max(Duration::from_millis(1))) {
            // A connection to a free port of this host can meet itself.
            Ok(stream) if stream.local_addr()? == stream.peer_addr()? => {
                last = io::Error::new(ErrorKind::ConnectionRefused, "nothing listens there");
            }
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}
