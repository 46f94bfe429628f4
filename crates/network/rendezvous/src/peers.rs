//! Connections between any two processes of a run, for bytes that do not go through process 0. As at the rendezvous,
//! both ends prove that they hold the token before anything else is read, and connections of others are bounded in
//! number and time.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::{Duration, Instant};

use session::Service;

use crate::message::Message;
use crate::sealed_stream::SealedStream;
use crate::token::Token;

/// Largest content of a message, in bytes.
pub const PEER_MESSAGE_BYTES: usize = 4 << 20;
/// Room for the name of a message.
const NAME_BYTES: usize = 256;
/// Connections without a proof at one time. A newer one takes the place of the oldest.
const MAX_UNPROVEN: usize = 64;
/// Time in which a connection must prove that it holds the token.
const LIFETIME: Duration = Duration::from_secs(3);
/// Time until connections are accepted again, where the system has no room for one.
const RETRY: Duration = Duration::from_millis(50);

/// One end of a connection between two processes of a run.
#[derive(Debug)]
pub struct PeerLink(SealedStream);

impl PeerLink {
    /// Connects to the process that listens at `address`; both prove that they hold the token. Every wait on the
    /// connection ends after `patience`.
    ///
    /// # Errors
    /// A process that cannot be reached, or that does not hold the token.
    pub fn connect(address: SocketAddr, token: &Token, patience: Duration) -> io::Result<PeerLink> {
        let stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_nodelay(true)?;
        let mut stream = SealedStream::connect(stream, token, Service::Peers, Instant::now() + patience)?;
        stream.set_patience(Some(patience))?;
        Ok(PeerLink(stream))
    }

    /// Sends `bytes`, at most [`PEER_MESSAGE_BYTES`], under a name of at most 255 bytes.
    ///
    /// # Errors
    /// A connection that has ended.
    pub fn send(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.0.send(&Message::Parcel { topic: name.into(), bytes: bytes.into() })
    }

    /// The next message: its name and its bytes.
    ///
    /// # Errors
    /// A connection that has ended, and bytes that are not a message.
    pub fn receive(&mut self) -> io::Result<(String, Vec<u8>)> {
        match self.0.receive(PEER_MESSAGE_BYTES + NAME_BYTES, None)? {
            Message::Parcel { topic, bytes } => Ok((topic, bytes)),
            Message::Introduction(_)
            | Message::Directory(_)
            | Message::Refusal(_)
            | Message::Heartbeat
            | Message::Failure(_)
            | Message::Stop(_)
            | Message::Goodbye => Err(io::Error::new(ErrorKind::InvalidData, "it is a message of the run")),
        }
    }
}

/// Answers connections of other processes, on a thread for each. It ends with this value.
pub struct PeerService {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

/// Answers the next message of a connection.
type Answer = dyn Fn(&mut PeerLink) -> io::Result<()> + Send + Sync;

struct Shared {
    token: Token,
    answer: Box<Answer>,
    refused: AtomicU64,
    is_over: AtomicBool,
}

/// A connection, and the thread that serves it.
struct Connection {
    stream: TcpStream,
    /// Whether its other end has proven that it holds the token.
    is_proven: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl fmt::Debug for PeerService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerService at {}", self.address)
    }
}

impl PeerService {
    /// Listens at a free port of the address `own` of this host. `answer` is called for each message of a
    /// connection that has proven to hold the token, until it fails.
    ///
    /// # Errors
    /// A system without sockets or threads.
    pub fn start(
        own: IpAddr,
        token: Token,
        answer: impl Fn(&mut PeerLink) -> io::Result<()> + Send + Sync + 'static,
    ) -> io::Result<PeerService> {
        let listener = TcpListener::bind((own, 0))?;
        let address = listener.local_addr()?;
        let (refused, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        let shared = Arc::new(Shared { token, answer: Box::new(answer), refused, is_over });
        let accepting = Arc::clone(&shared);
        let accepting = Builder::new().name("peers".into()).spawn(move || accept(&listener, &accepting))?;
        Ok(PeerService { address, shared, accepting: Some(accepting) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections that ended without a proof, so far.
    pub fn refused(&self) -> u64 {
        self.shared.refused.load(Ordering::Relaxed)
    }
}

impl Drop for PeerService {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect_timeout(&self.address, LIFETIME);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut all: Vec<Connection> = vec![];
    loop {
        let accepted = listener.accept();
        if shared.is_over.load(Ordering::Acquire) {
            break;
        }
        all.retain(|connection| !connection.thread.is_finished());
        let is_unproven = |connection: &Connection| !connection.is_proven.load(Ordering::Acquire);
        if all.iter().filter(|connection| is_unproven(connection)).count() >= MAX_UNPROVEN
            && let Some(oldest) = all.iter().position(is_unproven)
        {
            let _ = all.remove(oldest).stream.shutdown(Shutdown::Both);
        }
        let served = accepted.and_then(|(stream, _)| Connection::serve(stream, shared));
        // One that ended before it was accepted, or no more files for now.
        served.map_or_else(|_| sleep(RETRY), |connection| all.push(connection));
    }
    all.iter().for_each(|connection| _ = connection.stream.shutdown(Shutdown::Both));
    // A panic of a thread has printed its message.
    all.into_iter().for_each(|connection| _ = connection.thread.join());
}

impl Connection {
    /// Answers `stream` on a thread, until it ends.
    fn serve(stream: TcpStream, shared: &Arc<Shared>) -> io::Result<Connection> {
        let (known, shared, is_proven) = (stream.try_clone()?, Arc::clone(shared), Arc::<AtomicBool>::default());
        let proven = Arc::clone(&is_proven);
        let thread = Builder::new().name("peer".into()).spawn(move || {
            match shared.proven(&stream) {
                Ok(mut link) => {
                    proven.store(true, Ordering::Release);
                    while !shared.is_over.load(Ordering::Acquire) {
                        if (shared.answer)(&mut link).is_err() {
                            break;
                        }
                    }
                }
                Err(_) => _ = shared.refused.fetch_add(1, Ordering::Relaxed),
            }
            let _ = stream.shutdown(Shutdown::Both);
        })?;
        Ok(Connection { stream: known, is_proven, thread })
    }
}

impl Shared {
    /// The connection, if its other end proves within its lifetime that it holds the token.
    fn proven(&self, stream: &TcpStream) -> io::Result<PeerLink> {
        let stream = stream.try_clone()?;
        stream.set_nodelay(true)?;
        let mut stream = SealedStream::accept(stream, &self.token, Service::Peers, Instant::now() + LIFETIME)?;
        stream.set_patience(None)?;
        Ok(PeerLink(stream))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::Ipv4Addr;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn token(digit: &str) -> Token {
        Token::from_hex(&digit.repeat(64)).expect("64 digits")
    }

    /// Answers each message with its own bytes, backwards.
    fn backwards() -> PeerService {
        let answer = |link: &mut PeerLink| {
            let (name, bytes) = link.receive()?;
            link.send(&name, &bytes.into_iter().rev().collect::<Vec<u8>>())
        };
        PeerService::start(Ipv4Addr::LOCALHOST.into(), token("a"), answer).expect("a listener")
    }

    #[test]
    fn messages_of_any_size_are_answered_in_their_order() {
        let service = backwards();
        let mut link = PeerLink::connect(service.address(), &token("a"), PATIENCE).expect("it listens");
        for len in [0, 1, 1000, PEER_MESSAGE_BYTES] {
            let bytes: Vec<u8> = (0..len).map(|index| (index % 251) as u8).collect();
            link.send("bytes", &bytes).expect("sent");
            let (name, answer) = link.receive().expect("an answer");
            assert_eq!(name, "bytes");
            assert!(answer.iter().eq(bytes.iter().rev()), "{len} bytes");
        }
        assert_eq!(service.refused(), 0);
    }

    #[test]
    fn a_connection_without_the_token_is_not_answered() {
        let service = backwards();
        let rejection = PeerLink::connect(service.address(), &token("b"), PATIENCE).expect_err("another token");
        assert_eq!(rejection.to_string(), "its proof is not one by the token of this process");
        let mut cut = TcpStream::connect(service.address()).expect("it listens");
        cut.write_all(&session::unproven_greeting(Service::Peers)[..20]).expect("sent");
        drop(cut);
        let mut unproven = TcpStream::connect(service.address()).expect("it listens");
        unproven.write_all(&[&session::unproven_greeting(Service::Peers)[..], &[7; 1000]].concat()).expect("sent");
        let mut heard = vec![];
        let _ = unproven.read_to_end(&mut heard);
        assert!(heard.len() <= session::CHALLENGE_BYTES, "{} bytes", heard.len());
        let since = Instant::now();
        while service.refused() < 3 {
            assert!(since.elapsed() < PATIENCE, "{} refused", service.refused());
            sleep(RETRY);
        }
        let mut known = PeerLink::connect(service.address(), &token("a"), PATIENCE).expect("it listens");
        known.send("bytes", &[1, 2, 3]).expect("sent");
        assert_eq!(known.receive().expect("an answer").1, [3, 2, 1]);
    }

    /// Silent connections of others displace each other, and no process of the run.
    #[test]
    fn silent_strangers_keep_nobody_out() {
        let service = backwards();
        let rejections: Vec<TcpStream> =
            (0..2 * MAX_UNPROVEN).map(|_| TcpStream::connect(service.address()).expect("it listens")).collect();
        let mut known = PeerLink::connect(service.address(), &token("a"), PATIENCE).expect("it listens");
        known.send("bytes", &[1, 2]).expect("sent");
        assert_eq!(known.receive().expect("an answer").1, [2, 1]);
        drop(rejections);
    }

    #[test]
    fn bytes_that_are_no_record_end_a_connection() {
        let service = backwards();
        let stream = TcpStream::connect(service.address()).expect("it listens");
        let mut raw = stream.try_clone().expect("a socket");
        let until = Instant::now() + PATIENCE;
        let mut link = SealedStream::connect(stream, &token("a"), Service::Peers, until).expect("proven");
        raw.write_all(&[0; 64]).expect("sent");
        assert!(link.receive(PEER_MESSAGE_BYTES, Some(until)).is_err());
    }

    #[test]
    fn a_message_of_the_run_ends_a_connection() {
        let service = backwards();
        let mut link = PeerLink::connect(service.address(), &token("a"), PATIENCE).expect("it listens");
        link.0.send(&Message::Goodbye).expect("sent");
        assert!(link.receive().is_err());
    }
}
