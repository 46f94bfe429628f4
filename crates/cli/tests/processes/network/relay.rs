//! A relay between process 0 and all others, and between the ranks of every two: it sees and may change each byte.
//!
//! Processes reach process 0 at the relay. In the list of addresses that each receives when the ranks connect, those of
//! all others are addresses of the relay; nothing else of it changes.

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use rendezvous::{MAX_BYTES, Message, Token, decode, encode};

use super::cluster::PORT;
use super::namespaces::Network;

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

/// The message in which process 0 sends the addresses of all processes: for each a list.
const ADDRESSES: &str = "addresses of ranks";

/// Relays the connection of a process to process 0.
fn control(mut near: TcpStream, far: SocketAddr, own: IpAddr, change: &Arc<Change>) -> std::io::Result<()> {
    let mut far = TcpStream::connect(far)?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let mut first = vec![0; Token::BYTES];
    near.read_exact(&mut first)?;
    let mut sent = vec![];
    let Message::Introduction(introduction) = message(&mut near, &mut sent)? else { return Ok(()) };
    let from = introduction.entry.process;
    let there = Stretch { wire: Wire::Meeting, way: Way::There, from, to: 0 };
    first.extend(encode(&Message::Introduction(introduction)));
    change(there, 0, &mut first);
    far.write_all(&first)?;
    far.write_all(&sent)?;
    let (mut arrived, back) = (vec![], Stretch { way: Way::Back, ..there });
    let mut answer = encode(&message(&mut far, &mut arrived)?);
    change(back, 0, &mut answer);
    near.write_all(&answer)?;
    let (there, back) = (Stretch { wire: Wire::Control, ..there }, Stretch { wire: Wire::Control, ..back });
    let (upwards, up_change) = ((near.try_clone()?, far.try_clone()?), Arc::clone(change));
    std::thread::spawn(move || pass(upwards.0, upwards.1, (there, 0), &up_change));
    let mut offset = 0;
    loop {
        let mut next = message(&mut far, &mut arrived)?;
        let mut is_list = false;
        if let Message::Parcel { topic, bytes } = &mut next
            && topic == ADDRESSES
        {
            *bytes = redirected(bytes, from, own, change);
            is_list = true;
        }
        let mut bytes = encode(&next);
        if is_list {
            bytes.append(&mut arrived);
        }
        change(back, offset, &mut bytes);
        near.write_all(&bytes)?;
        offset += bytes.len() as u64;
        if is_list {
            pass(far, near, (back, offset), change);
            return Ok(());
        }
    }
}

/// The next message of `socket`, of which `arrived` holds the bytes that have come before and those that come after.
fn message(socket: &mut TcpStream, arrived: &mut Vec<u8>) -> std::io::Result<Message> {
    let mut block = [0; 4096];
    loop {
        if let Some((message, length)) = decode(arrived, MAX_BYTES).expect("a sound message") {
            arrived.drain(..length);
            return Ok(message);
        }
        match socket.read(&mut block)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            read => arrived.extend(&block[..read]),
        }
    }
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
    both_ways(near, far, Stretch { wire: Wire::Data, way: Way::There, from, to }, change);
    Ok(())
}

fn both_ways(near: TcpStream, far: TcpStream, there: Stretch, change: &Arc<Change>) {
    let others = (far.try_clone().expect("a socket"), near.try_clone().expect("a socket"));
    let (back, back_change) = (Stretch { way: Way::Back, ..there }, Arc::clone(change));
    std::thread::spawn(move || pass(others.0, others.1, (back, 0), &back_change));
    pass(near, far, (there, 0), change);
}

/// Passes bytes on until one side ends; the first has the given offset in its stretch.
fn pass(mut from: TcpStream, mut to: TcpStream, (stretch, first): (Stretch, u64), change: &Arc<Change>) {
    let (mut block, mut offset) = (vec![0; 64 << 10], first);
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
