//! The other processes before the run: they connect to process 0, introduce themselves and wait for its answer.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::thread::sleep;
use std::time::{Duration, Instant};

use launcher::Address;
use mio::Poll;

use crate::Times;
use crate::control::Control;
use crate::error::RendezvousError;
use crate::frame::{FrameError, MAX_INTRODUCTION_BYTES};
use crate::introduction::{Directory, Introduction};
use crate::link::Link;
use crate::listening::Listening;
use crate::message::{Message, decode, encode};
use crate::service::Peer;
use crate::token::Token;

/// Longest time between two attempts to reach process 0.
const RETRY: Duration = Duration::from_millis(100);
/// Longest time of one attempt.
const ATTEMPT: Duration = Duration::from_secs(2);
/// Times after which a process whose connection was closed without an answer tries again.
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
    let mut first = token.bytes().to_vec();
    first.extend(encode(&Message::Introduction(own.clone())));
    let until = Instant::now() + times.rendezvous + ANSWER;
    let mut pauses = PAUSES.into_iter();
    let (message, incoming) = loop {
        let no_answer = match introduce(&mut stream, &first, until) {
            Ok(answer) => break answer,
            Err(Unanswered::Malformed(error)) => {
                return Err(RendezvousError::Malformed { process, address: address.clone(), error });
            }
            Err(Unanswered::Closed(error)) => {
                RendezvousError::NoAnswer { process, address: address.clone(), reason: reason(&error) }
            }
        };
        // Many connections of others at the same time may have displaced this one.
        let Some(pause) = pauses.next().filter(|_| Instant::now() < until) else { return Err(no_answer) };
        sleep(pause);
        stream = attempt(address, ATTEMPT).map_err(|_| no_answer)?;
    };
    match message {
        Answer::Refusal(reasons) => Err(RendezvousError::Refused(reasons)),
        Answer::Directory(directory) => {
            stream.set_read_timeout(None)?;
            stream.set_nonblocking(true)?;
            let poll = Poll::new()?;
            let mut link = Link::new(mio::net::TcpStream::from_std(stream), incoming);
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
    /// The connection ended, or time is up.
    Closed(io::Error),
    /// The bytes are not those of process 0.
    Malformed(FrameError),
}

/// Sends the `first` bytes; returns the answer, and the bytes that came after it.
fn introduce(stream: &mut TcpStream, first: &[u8], until: Instant) -> Result<(Answer, Vec<u8>), Unanswered> {
    stream.write_all(first).map_err(Unanswered::Closed)?;
    let mut incoming = vec![];
    loop {
        if let Some((message, length)) = decode(&incoming, MAX_DIRECTORY_BYTES).map_err(Unanswered::Malformed)? {
            incoming.drain(..length);
            match message {
                Message::Refusal(reasons) => return Ok((Answer::Refusal(reasons), incoming)),
                Message::Directory(directory) => return Ok((Answer::Directory(directory), incoming)),
                Message::Introduction(_)
                | Message::Heartbeat
                | Message::Failure(_)
                | Message::Stop(_)
                | Message::Goodbye
                | Message::Parcel { .. } => {}
            }
        }
        read_some(stream, &mut incoming, until).map_err(Unanswered::Closed)?;
    }
}

/// Reads at least one byte before `until`.
fn read_some(stream: &mut TcpStream, incoming: &mut Vec<u8>, until: Instant) -> io::Result<()> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(ErrorKind::TimedOut.into());
    }
    stream.set_read_timeout(Some(left))?;
    let mut block = vec![0; 64 << 10];
    match stream.read(&mut block) {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Ok(read) => {
            incoming.extend(&block[..read]);
            Ok(())
        }
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
        Err(error) => Err(error),
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
