//! A proxy in front of a store whose connections end, wait, lose answers or say that the server failed, by a seed.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The fate of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Sound,
    /// It ends after N bytes of requests.
    EndsAfterSent(usize),
    /// It ends after N bytes of answers: a body is cut off, or an answer is lost.
    EndsAfterReceived(usize),
    /// Nothing passes for this time.
    Waits(Duration),
    /// The first answer is an error of the server.
    Fails,
}

/// The state of all connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// About half of them have a fault.
    Bad,
    Down,
    Sound,
}

/// The proxy; its threads end with the tests.
#[derive(Clone)]
pub struct Proxy {
    pub port: u16,
    faults: Arc<AtomicU64>,
    line: Arc<AtomicU64>,
}

impl Proxy {
    /// To the server at `port`, with faults of `seed`.
    pub fn start(port: u16, seed: u64) -> Proxy {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let own = listener.local_addr().expect("an address").port();
        let proxy = Proxy { port: own, faults: Arc::default(), line: Arc::default() };
        proxy.set(Line::Bad);
        let of_thread = proxy.clone();
        std::thread::spawn(move || {
            for (number, near) in listener.incoming().map_while(Result::ok).enumerate() {
                let proxy = of_thread.clone();
                std::thread::spawn(move || proxy.relay(near, port, fate(mixed(seed ^ (number as u64) << 20))));
            }
        });
        proxy
    }

    /// Faults so far.
    pub fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }

    /// Changes the line for connections to come.
    pub fn set(&self, line: Line) {
        self.line.store(line as u64, Ordering::Relaxed);
    }

    fn relay(&self, mut near: TcpStream, port: u16, fate: Fate) -> std::io::Result<()> {
        let fate = match self.line.load(Ordering::Relaxed) {
            line if line == Line::Down as u64 => return near.shutdown(Shutdown::Both),
            line if line == Line::Sound as u64 => Fate::Sound,
            _ => fate,
        };
        if fate != Fate::Sound {
            self.faults.fetch_add(1, Ordering::Relaxed);
        }
        let mut far = TcpStream::connect(("127.0.0.1", port))?;
        let (mut sent, mut received) = (usize::MAX, usize::MAX);
        match fate {
            Fate::Sound => {}
            Fate::EndsAfterSent(bytes) => sent = bytes,
            Fate::EndsAfterReceived(bytes) => received = bytes,
            Fate::Waits(time) => std::thread::sleep(time),
            Fate::Fails => {
                let mut head = [0; 512];
                let _ = near.read(&mut head)?;
                near.write_all(
                    b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                )?;
                return near.shutdown(Shutdown::Write);
            }
        }
        let (mut near_too, mut far_too) = (near.try_clone()?, far.try_clone()?);
        let line = Arc::clone(&self.line);
        std::thread::spawn(move || pass(&mut far_too, &mut near_too, received, &line));
        pass(&mut near, &mut far, sent, &self.line);
        Ok(())
    }
}

/// Passes bytes until one end or the line is gone, or `left` of them have passed; then both connections end.
fn pass(from: &mut TcpStream, to: &mut TcpStream, mut left: usize, line: &AtomicU64) {
    let mut buffer = vec![0; 1 << 16];
    while left > 0 {
        let limit = buffer.len().min(left);
        let Ok(count @ 1..) = from.read(&mut buffer[..limit]) else { break };
        if line.load(Ordering::Relaxed) == Line::Down as u64 || to.write_all(&buffer[..count]).is_err() {
            break;
        }
        left -= count;
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

/// The fate of a connection by its number.
fn fate(number: u64) -> Fate {
    let bytes = (number >> 8) as usize % 60_000;
    match number % 12 {
        0 | 1 => Fate::EndsAfterSent(bytes),
        2 => Fate::EndsAfterReceived(bytes % 1_000),
        3 => Fate::EndsAfterReceived(bytes),
        4 => Fate::Waits(Duration::from_millis(bytes as u64 % 300)),
        5 => Fate::Fails,
        _ => Fate::Sound,
    }
}

/// A number that looks like a random one (the finalizer of splitmix64).
pub fn mixed(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}
