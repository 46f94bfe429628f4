//! A stretch of wire between two processes that changes what passes. It holds the token and speaks with each of them as
//! the other one, so that it knows the frames; it changes their sealed bytes, as a relay without the token does.

use secrets::Secret;
use session::{CHALLENGE_BYTES, Challenged, Connecting, GREETING_BYTES, Opener, PROOF_BYTES, Sealer, Service, Session};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;

/// The secret of the worlds of these tests.
const SECRET: Secret = Secret::new([0x5a; 32]);
/// Bytes of a sealed preamble and of a sealed header.
const PREAMBLE_BYTES: usize = 72;
pub const HEADER_BYTES: usize = 112;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the process that connects to the one that listens.
    There,
    /// The other way.
    Back,
}

/// The treatment of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It passes.
    Passes,
    /// One of its bytes is changed.
    Changed(usize),
    /// It never comes.
    Dropped,
    /// It comes twice.
    Doubled,
    /// It ends after this number of bytes, and with it the connection.
    Cut(usize),
}

/// A relay for one connection.
pub struct Relay {
    /// Where to connect to.
    pub address: SocketAddr,
    thread: JoinHandle<()>,
}

impl Relay {
    /// A relay to `target`. `fate` decides about each frame by its way, its kind and its bytes.
    pub fn new(target: SocketAddr, fate: impl Fn(Way, u32, &[u8]) -> Fate + Send + Sync + 'static) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let fate = Arc::new(fate);
        let thread = std::thread::spawn(move || {
            let (mut near, _) = listener.accept().unwrap();
            let mut far = TcpStream::connect(target).unwrap();
            let (near_session, far_session) = (met_as_listener(&mut near), met_as_connector(&mut far));
            let other = (near.try_clone().unwrap(), far.try_clone().unwrap());
            let back_fate = Arc::clone(&fate);
            let (opener, sealer) = (far_session.opener, near_session.sealer);
            let back = std::thread::spawn(move || {
                pass((other.1, opener), (other.0, sealer), &|kind, frame| back_fate(Way::Back, kind, frame));
            });
            let (opener, sealer) = (near_session.opener, far_session.sealer);
            pass((near, opener), (far, sealer), &|kind, frame| fate(Way::There, kind, frame));
            back.join().unwrap();
        });
        Relay { address, thread }
    }

    /// Waits for the end of both ways.
    pub fn end(self) {
        self.thread.join().unwrap();
    }
}

fn met_as_listener(socket: &mut TcpStream) -> Session {
    let greeting: [u8; GREETING_BYTES] = read(socket).unwrap();
    let challenged = Challenged::new(&SECRET, Service::World, &greeting).unwrap();
    socket.write_all(&challenged.challenge()).unwrap();
    let proof: [u8; PROOF_BYTES] = read(socket).unwrap();
    challenged.admit(&proof).unwrap()
}

fn met_as_connector(socket: &mut TcpStream) -> Session {
    let connecting = Connecting::new(&SECRET, Service::World).unwrap();
    socket.write_all(connecting.greeting()).unwrap();
    let challenge: [u8; CHALLENGE_BYTES] = read(socket).unwrap();
    let (proof, session) = connecting.answer(&challenge).unwrap().unwrap();
    socket.write_all(&proof).unwrap();
    session
}

fn read<const N: usize>(socket: &mut TcpStream) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    socket.read_exact(&mut bytes).ok().map(|()| bytes)
}

/// Passes frames on until one side closes: opened as the receiver does, and sealed as the sender does.
fn pass(
    (mut from, mut opener): (TcpStream, Opener),
    (mut to, mut sealer): (TcpStream, Sealer),
    fate: &dyn Fn(u32, &[u8]) -> Fate,
) {
    to.set_nodelay(true).unwrap();
    let preamble = next_frame::<PREAMBLE_BYTES>(&mut from, &mut opener, &mut sealer, &|_| 0);
    if preamble.is_some_and(|(_, preamble)| to.write_all(&preamble).is_ok()) {
        let payload_len = |fields: &[u8]| word(fields, 4) as usize;
        while let Some((kind, mut frame)) =
            next_frame::<HEADER_BYTES>(&mut from, &mut opener, &mut sealer, &payload_len)
        {
            let written = match fate(kind, &frame) {
                Fate::Passes => to.write_all(&frame),
                Fate::Changed(at) => {
                    frame[at] ^= 0x10;
                    to.write_all(&frame)
                }
                Fate::Dropped => Ok(()),
                Fate::Doubled => to.write_all(&frame.repeat(2)),
                Fate::Cut(at) => to.write_all(&frame[..at]).and(Err(ErrorKind::BrokenPipe.into())),
            };
            if written.is_err() {
                break;
            }
        }
    }
    // The end of one way is the end of the other: a peer that does not close would keep it open.
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

fn word(fields: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(fields[at..at + 4].try_into().unwrap())
}

/// The kind of the next frame, and its bytes as the receiver gets them.
fn next_frame<const HEAD: usize>(
    from: &mut TcpStream,
    opener: &mut Opener,
    sealer: &mut Sealer,
    payload_len: &dyn Fn(&[u8]) -> usize,
) -> Option<(u32, Vec<u8>)> {
    let mut head: [u8; HEAD] = read(from)?;
    let (fields, seal) = opener.open_head(&mut head).ok()?;
    let (kind, mut payload) = (word(fields, 0), vec![0; payload_len(fields)]);
    from.read_exact(&mut payload).ok()?;
    opener.open_payload(&seal, &mut payload).ok()?;
    let mut sealed = vec![];
    sealer.append(fields, &payload, &mut sealed);
    Some((kind, sealed))
}
