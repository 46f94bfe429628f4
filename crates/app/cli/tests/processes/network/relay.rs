//! Relays between process 0 and all others, and between the ranks of every two: they see and may change each byte.
//!
//! [`start`] holds the token and speaks with each process as the other one, so that it knows the messages of the
//! control channel: in the list of addresses that each process receives when the ranks connect, those of all others are
//! addresses of the relay; nothing else of it changes. The bytes that it shows are sealed. [`start_blind`] passes
//! bytes.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rendezvous::{MAX_BYTES, Message, SealedStream, Service, StreamError, Token, encode};

use super::cluster::{LIMIT, PORT, TOKEN};
use super::namespaces::Network;

/// The connection that bytes are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wire {
    /// To process 0, up to the introduction, and its answer; all bytes of a relay that is blind.
    Meeting,
    /// To process 0 from then on.
    Control,
    /// Between the ranks of two processes.
    Data,
}

/// The direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// From the process that has connected.
    There,
    /// To it.
    Back,
}

/// Which bytes pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteRange {
    pub wire: Wire,
    pub way: Way,
    /// The process that has connected.
    pub from: usize,
    /// The process to which it has connected.
    pub to: usize,
}

/// Sees bytes of a stretch, which begin at an offset of it, and may change them.
pub type Change = dyn Fn(ByteRange, u64, &mut [u8]) + Send + Sync;

/// Starts a relay on the host outside of the run; returns where processes find process 0 by it.
pub fn start(network: &Network, change: impl Fn(ByteRange, u64, &mut [u8]) + Send + Sync + 'static) -> SocketAddr {
    let own: IpAddr = network.address(network.outsider()).into();
    listen(network, Arc::new(change), move |near, far, change| {
        // The end of a run may end it anywhere.
        let _ = control(near, far, own, change);
    })
}

/// Starts a relay as [`start`] does, but one that has no token: it shows each byte of the connections to process 0, and
/// sees none of those between ranks.
pub fn start_blind(
    network: &Network,
    change: impl Fn(ByteRange, u64, &mut [u8]) + Send + Sync + 'static,
) -> SocketAddr {
    listen(network, Arc::new(change), |near, far, change| {
        if let Ok(far) = TcpStream::connect(far) {
            both_ways(near, far, ByteRange { wire: Wire::Meeting, way: Way::There, from: usize::MAX, to: 0 }, change);
        }
    })
}

fn listen(
    network: &Network,
    change: Arc<Change>,
    relay: impl Fn(TcpStream, SocketAddr, &Arc<Change>) + Copy + Send + Sync + 'static,
) -> SocketAddr {
    let (own, far) = (network.address(network.outsider()), network.socket(0, PORT));
    network.on(network.outsider(), || {
        let listener = TcpListener::bind((own, 0)).expect("a port");
        let near = listener.local_addr().expect("an address");
        // A thread is on the host of the thread that starts it.
        std::thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let change = Arc::clone(&change);
                std::thread::spawn(move || relay(socket, far, &change));
            }
        });
        near
    })
}

/// The message in which process 0 sends the addresses of all processes: for each a list.
const ADDRESSES: &str = "addresses of ranks";
/// Bytes of both ends before their first record, and those of a record apart from its content.
const HANDSHAKE: u64 = 72;
const RECORD: u64 = 44;
/// Bytes of the longest content of a record.
const CONTENT: u64 = 16 << 10;
/// How long a way waits before the other one is looked at.
const GLANCE: Duration = Duration::from_millis(1);

/// The part of a connection that is a meeting, as its relay learns it.
struct Meeting {
    from: AtomicUsize,
    there: AtomicU64,
    back: AtomicU64,
}

impl Meeting {
    fn note(&self, length: &AtomicU64, message: &Message) {
        let bytes = encode(message).len() as u64;
        length.store(HANDSHAKE + bytes + bytes.div_ceil(CONTENT) * RECORD, Ordering::SeqCst);
    }

    /// Shows bytes of a way, which begin at `offset` of the connection.
    fn show(&self, way: Way, offset: u64, bytes: &mut [u8], change: &Change) {
        let end = if way == Way::There { &self.there } else { &self.back }.load(Ordering::SeqCst);
        let of_meeting = usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX).min(bytes.len());
        let (meeting, control) = bytes.split_at_mut(of_meeting);
        let range = ByteRange { wire: Wire::Meeting, way, from: self.from.load(Ordering::SeqCst), to: 0 };
        if !meeting.is_empty() {
            change(range, offset, meeting);
        }
        if !control.is_empty() {
            change(ByteRange { wire: Wire::Control, ..range }, (offset + of_meeting as u64) - end, control);
        }
    }
}

/// Relays the connection of a process to process 0.
fn control(near: TcpStream, far: SocketAddr, own: IpAddr, change: &Arc<Change>) -> Result<(), StreamError> {
    let token = Token::from_hex(TOKEN).expect("a token");
    let [there, back] = [u64::MAX; 2].map(AtomicU64::new);
    let meeting = Arc::new(Meeting { from: AtomicUsize::new(usize::MAX), there, back });
    let near = shown(near, Way::Back, &meeting, change)?;
    let until = Instant::now() + LIMIT;
    let mut near = SealedStream::accept(near, &token, Service::Meeting, until)?;
    let introduction = near.receive(MAX_BYTES, Some(until))?;
    let Message::Introduction(content) = &introduction else { return Ok(()) };
    let from = content.entry.process;
    meeting.from.store(from, Ordering::SeqCst);
    meeting.note(&meeting.there, &introduction);
    let far = shown(TcpStream::connect(far)?, Way::There, &meeting, change)?;
    let mut far = SealedStream::connect(far, &token, Service::Meeting, until)?;
    far.send(&introduction)?;
    let answer = far.receive(MAX_BYTES, Some(until))?;
    meeting.note(&meeting.back, &answer);
    near.send(&answer)?;
    let mut has_left = false;
    loop {
        match near.receive(MAX_BYTES, Some(Instant::now() + GLANCE)) {
            Ok(message) => {
                has_left |= message == Message::Goodbye;
                far.send(&message)?;
            }
            Err(StreamError::Ended(error)) if is_pause(&error) || has_left => {}
            Err(error) => return Err(error),
        }
        match far.receive(MAX_BYTES, Some(Instant::now() + GLANCE)) {
            Ok(mut message) => {
                if let Message::Parcel { topic, bytes } = &mut message
                    && topic == ADDRESSES
                {
                    *bytes = redirected(bytes, from, own, change);
                }
                near.send(&message)?;
            }
            Err(StreamError::Ended(error)) if is_pause(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

fn is_pause(error: &std::io::Error) -> bool {
    [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind())
}

/// The connection as the relay reads and writes it, of which the bytes of one way are shown.
fn shown(outer: TcpStream, way: Way, meeting: &Arc<Meeting>, change: &Arc<Change>) -> std::io::Result<TcpStream> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let address = (Ipv4Addr::LOCALHOST, listener.local_addr()?.port());
    let inner = TcpStream::connect(address)?;
    let (end, _) = listener.accept()?;
    for stream in [&outer, &inner, &end] {
        stream.set_nodelay(true)?;
    }
    let (read, written) = ((end.try_clone()?, outer.try_clone()?), (outer, end));
    let (meeting, change) = (Arc::clone(meeting), Arc::clone(change));
    std::thread::spawn(move || {
        pass_on(read.0, read.1, &|offset, bytes| meeting.show(way, offset, bytes, &*change));
    });
    std::thread::spawn(move || pass_on(written.0, written.1, &|_, _| ()));
    Ok(inner)
}

/// The list of addresses with which `from` reaches the ranks of all others through listeners of the relay.
fn redirected(list: &[u8], from: usize, own: IpAddr, change: &Arc<Change>) -> Vec<u8> {
    let mut list: Vec<Vec<String>> = serde_json::from_slice(list).expect("texts");
    for (to, addresses) in list.iter_mut().enumerate().filter(|(to, _)| *to != from) {
        for text in addresses {
            let Some(address) = text.strip_prefix("tcp ").and_then(|address| address.parse().ok()) else { continue };
            let listener = TcpListener::bind((own, 0)).expect("a port");
            *text = format!("tcp {}", listener.local_addr().expect("an address"));
            let change = Arc::clone(change);
            std::thread::spawn(move || data(&listener, address, (from, to), &change));
        }
    }
    serde_json::to_vec(&list).expect("texts")
}

/// Relays one connection between the ranks of two processes.
fn data(
    listener: &TcpListener,
    far: SocketAddr,
    (from, to): (usize, usize),
    change: &Arc<Change>,
) -> std::io::Result<()> {
    let (near, _) = listener.accept()?;
    let far = TcpStream::connect(far)?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    both_ways(near, far, ByteRange { wire: Wire::Data, way: Way::There, from, to }, change);
    Ok(())
}

fn both_ways(near: TcpStream, far: TcpStream, there: ByteRange, change: &Arc<Change>) {
    let others = (far.try_clone().expect("a socket"), near.try_clone().expect("a socket"));
    let (back, back_change) = (ByteRange { way: Way::Back, ..there }, Arc::clone(change));
    std::thread::spawn(move || pass_on(others.0, others.1, &|offset, bytes| back_change(back, offset, bytes)));
    pass_on(near, far, &|offset, bytes| change(there, offset, bytes));
}

/// Passes bytes on until one side ends.
fn pass_on(mut from: TcpStream, mut to: TcpStream, change: &dyn Fn(u64, &mut [u8])) {
    let (mut block, mut offset) = (vec![0; 64 << 10], 0);
    while let Ok(read @ 1..) = from.read(&mut block) {
        change(offset, &mut block[..read]);
        offset += read as u64;
        if to.write_all(&block[..read]).is_err() {
            let _ = from.shutdown(Shutdown::Both);
            return;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
