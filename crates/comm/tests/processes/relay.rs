//! A stretch of wire between two processes that changes what passes.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Bytes of a preamble and of a frame's header.
const PREAMBLE_BYTES: usize = 64;
pub const HEADER_BYTES: usize = 96;

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
    pub fn new(target: SocketAddr, fate: impl Fn(Way, u16, &[u8]) -> Fate + Send + Sync + 'static) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let fate = Arc::new(fate);
        let thread = std::thread::spawn(move || {
            let (near, _) = listener.accept().unwrap();
            let far = TcpStream::connect(target).unwrap();
            let other = (near.try_clone().unwrap(), far.try_clone().unwrap());
            let back_fate = Arc::clone(&fate);
            let back =
                std::thread::spawn(move || pass(other.1, other.0, &|kind, frame| back_fate(Way::Back, kind, frame)));
            pass(near, far, &|kind, frame| fate(Way::There, kind, frame));
            back.join().unwrap();
        });
        Relay { address, thread }
    }

    /// Waits for the end of both ways.
    pub fn end(self) {
        self.thread.join().unwrap();
    }
}

/// Passes frames on until one side closes.
fn pass(mut from: TcpStream, mut to: TcpStream, fate: &dyn Fn(u16, &[u8]) -> Fate) {
    to.set_nodelay(true).unwrap();
    let mut preamble = [0; PREAMBLE_BYTES];
    if from.read_exact(&mut preamble).and_then(|()| to.write_all(&preamble)).is_ok() {
        while let Some(mut frame) = next_frame(&mut from) {
            let kind = u16::from_le_bytes([frame[6], frame[7]]);
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

fn next_frame(from: &mut TcpStream) -> Option<Vec<u8>> {
    let mut frame = vec![0; HEADER_BYTES];
    from.read_exact(&mut frame).ok()?;
    let payload = u32::from_le_bytes([frame[36], frame[37], frame[38], frame[39]]) as usize;
    frame.resize(HEADER_BYTES + payload, 0);
    from.read_exact(&mut frame[HEADER_BYTES..]).ok()?;
    Some(frame)
}
