//! A relay between process 0 and all others, and between the ranks of every two: it sees and may change each byte.
//!
//! Processes reach process 0 at the relay. In the directory that each receives, the addresses of all ranks are those of the
//! relay, too; nothing else of it changes.

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use rendezvous::{Directory, MAX_BYTES, Message, Token, decode, encode};

use crate::cluster::PORT;
use crate::namespaces::Network;

/// The connection that bytes are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wire {
    /// To process 0, up to the introduction, and its answer.
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
pub struct Stretch {
    pub wire: Wire,
    pub way: Way,
    /// The process that has connected.
    pub from: usize,
    /// The process to which it has connected.
    pub to: usize,
}

/// Sees bytes of a stretch, which begin at an offset of it, and may change them.
pub type Change = dyn Fn(Stretch, u64, &mut [u8]) + Send + Sync;

/// Starts a relay on the host outside of the run; returns where processes find process 0 by it.
pub fn start(network: &Network, change: impl Fn(Stretch, u64, &mut [u8]) + Send + Sync + 'static) -> SocketAddr {
    let (own, far) = (network.address(network.outsider()).into(), network.socket(0, PORT));
    let change: Arc<Change> = Arc::new(change);
    network.on(network.outsider(), || {
        let listener = TcpListener::bind((own, 0)).expect("a port");
        let near = listener.local_addr().expect("an address");
        // A thread is on the host of the thread that starts it.
        std::thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let change = Arc::clone(&change);
                // The end of a run may end it anywhere.
                std::thread::spawn(move || control(socket, far, own, &change));
            }
        });
        near
    })
}

/// Relays the connection of a process to process 0.
fn control(mut near: TcpStream, far: SocketAddr, own: IpAddr, change: &Arc<Change>) -> std::io::Result<()> {
    let mut far = TcpStream::connect(far)?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let mut first = vec![0; Token::BYTES];
    near.read_exact(&mut first)?;
    let (introduction, rest) = message(&mut near)?;
    let Message::Introduction(introduction) = introduction else { return Ok(()) };
    let from = introduction.entry.process;
    let stretch = Stretch { wire: Wire::Meeting, way: Way::There, from, to: 0 };
    first.extend(encode(&Message::Introduction(introduction)));
    change(stretch, 0, &mut first);
    far.write_all(&first)?;
    far.write_all(&rest)?;
    let (mut answer, rest) = message(&mut far)?;
    if let Message::Directory(directory) = &mut answer {
        redirect(directory, from, own, change);
    }
    let mut answer = encode(&answer);
    change(Stretch { way: Way::Back, ..stretch }, 0, &mut answer);
    near.write_all(&answer)?;
    near.write_all(&rest)?;
    both_ways(near, far, Stretch { wire: Wire::Control, ..stretch }, change);
    Ok(())
}

/// Reads a message, and perhaps bytes after it.
fn message(socket: &mut TcpStream) -> std::io::Result<(Message, Vec<u8>)> {
    let (mut bytes, mut block) = (vec![], [0; 4096]);
    loop {
        if let Some((message, length)) = decode(&bytes, MAX_BYTES).expect("a sound message") {
            return Ok((message, bytes.split_off(length)));
        }
        match socket.read(&mut block)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            read => bytes.extend(&block[..read]),
        }
    }
}

/// Makes `from` reach the ranks of all others through listeners of the relay.
fn redirect(directory: &mut Directory, from: usize, own: IpAddr, change: &Arc<Change>) {
    for entry in directory.processes.iter_mut().filter(|entry| entry.process != from) {
        let to = entry.process;
        for text in &mut entry.addresses {
            let Some(address) = text.strip_prefix("tcp ").and_then(|address| address.parse().ok()) else { continue };
            let listener = TcpListener::bind((own, 0)).expect("a port");
            *text = format!("tcp {}", listener.local_addr().expect("an address"));
            let change = Arc::clone(change);
            std::thread::spawn(move || data(&listener, address, (from, to), &change));
        }
    }
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
    both_ways(near, far, Stretch { wire: Wire::Data, way: Way::There, from, to }, change);
    Ok(())
}

fn both_ways(near: TcpStream, far: TcpStream, there: Stretch, change: &Arc<Change>) {
    let others = (far.try_clone().expect("a socket"), near.try_clone().expect("a socket"));
    let (back, back_change) = (Stretch { way: Way::Back, ..there }, Arc::clone(change));
    std::thread::spawn(move || pass(others.0, others.1, back, &back_change));
    pass(near, far, there, change);
}

/// Passes bytes on until one side ends.
fn pass(mut from: TcpStream, mut to: TcpStream, stretch: Stretch, change: &Arc<Change>) {
    let (mut block, mut offset) = (vec![0; 64 << 10], 0);
    while let Ok(read @ 1..) = from.read(&mut block) {
        change(stretch, offset, &mut block[..read]);
        offset += read as u64;
        if to.write_all(&block[..read]).is_err() {
            let _ = from.shutdown(Shutdown::Both);
            return;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
