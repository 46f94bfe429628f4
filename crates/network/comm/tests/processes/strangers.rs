//! Connections that are not of the world, while it runs.

use crate::processes::{PATIENT, communicator};
use crate::worlds::wire::{Wire, members, open};
use comm::processes::{Listeners, LocalRanks, OpenError, ProcessMap, Refusals, WorldMember, WorldToken};
use comm::{ThreadTransport, Timeouts};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SocketFlags, SocketType, bind, connect, recvmsg, socket_with,
};
use session::Service;
use std::io::{IoSliceMut, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The bytes that a stranger sends before it waits or goes.
#[derive(Clone, Copy)]
enum Stranger {
    Nothing,
    HalfAPreamble,
    WrongToken,
    Garbage,
}

/// Connections without a proof that are kept: one of each process more than 128.
const KEPT: u64 = 128 + 2;

const STRANGERS: [Stranger; 4] = [Stranger::Nothing, Stranger::HalfAPreamble, Stranger::WrongToken, Stranger::Garbage];

impl Stranger {
    fn bytes(self) -> Vec<u8> {
        match self {
            Stranger::Nothing => vec![],
            Stranger::HalfAPreamble => session::unproven_greeting(Service::World)[..31].to_vec(),
            Stranger::WrongToken => {
                let greeting = session::unproven_greeting(Service::World);
                [&greeting[..], &[1; 104]].concat()
            }
            Stranger::Garbage => (0..5_000u32).map(|at| (at * at % 255) as u8).collect(),
        }
    }
}

fn sum_until(end: ThreadTransport, is_over: &AtomicBool) -> u64 {
    let communicator = communicator(end, 0);
    let mut rounds = 0;
    loop {
        let mut data = vec![1.0f32; 20_000];
        communicator.all_reduce_sum(&mut data).unwrap();
        assert!(data.iter().all(|&x| x == 4.0));
        rounds += 1;
        // All ranks decide together.
        let mut ends = [f32::from(u8::from(is_over.load(Ordering::Relaxed)))];
        communicator.all_reduce_max(&mut ends).unwrap();
        if ends == [1.0] {
            return rounds;
        }
    }
}

/// Lets strangers come while a world of four ranks in two processes sums; the connections that process 0 refused.
fn sums_with_strangers(wire: Wire, strangers: impl FnOnce(&WorldMember, &Refusals)) -> Arc<Refusals> {
    let members = members(wire, &[vec![0, 1], vec![2, 3]], 1, PATIENT);
    let WorldMember { process, num_lanes, timeouts, ref token, ref process_map, .. } = members[0];
    let (token, process_map) = (token.clone(), process_map.clone());
    let listens = WorldMember { process, process_map, listeners: Listeners::default(), token, num_lanes, timeouts };
    let opened = open(members);
    let refusals = Arc::clone(&opened[0].refusals);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ends = opened.into_iter().flat_map(|LocalRanks { ends, .. }| ends).flatten();
        let ranks: Vec<_> = ends.map(|end| scope.spawn(|| sum_until(end, &is_over))).collect();
        strangers(&listens, &refusals);
        is_over.store(true, Ordering::Relaxed);
        ranks.into_iter().for_each(|rank| assert!(rank.join().unwrap() > 0));
    });
    refusals
}

fn wait_for(refusals: &Refusals, count: u64) {
    while refusals.total() < count {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_thousand_strangers_over_tcp_do_not_disturb_a_world() {
    let refusals = sums_with_strangers(Wire::Tcp, |member, refusals| {
        let address = member.process_map.processes()[0].tcp.unwrap();
        for (number, stranger) in (1..=1000).zip(STRANGERS.into_iter().cycle()) {
            let mut socket = TcpStream::connect(address).unwrap();
            // The other end may have closed already.
            let _ = socket.write_all(&stranger.bytes());
            drop(socket);
            wait_for(refusals, number);
        }
    });
    assert_eq!((refusals.total(), refusals.wrong()), (1000, 1000));
}

#[test]
fn strangers_on_the_machine_do_not_disturb_a_world_that_shares_memory() {
    let refusals = sums_with_strangers(Wire::SharedMemory, |member, refusals| {
        let name = &member.process_map.processes()[0].local.as_ref().unwrap().name;
        for (number, stranger) in (1..=200).zip(STRANGERS.into_iter().cycle()) {
            let mut socket = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
            let _ = socket.write_all(&stranger.bytes());
            drop(socket);
            wait_for(refusals, number);
        }
    });
    assert_eq!(refusals.wrong(), 200);
}

#[test]
fn a_fixed_number_of_half_open_connections_is_kept_and_all_end() {
    let mut held = Vec::new();
    let refusals = sums_with_strangers(Wire::Tcp, |member, refusals| {
        let address = member.process_map.processes()[0].tcp.unwrap();
        for _ in 0..300 {
            held.push(TcpStream::connect(address).unwrap());
        }
        wait_for(refusals, 300);
    });
    assert_eq!(refusals.crowded() + refusals.late(), 300);
    assert!(refusals.crowded() >= 300 - KEPT, "the oldest go when there are too many: {refusals:?}");
    for mut socket in held {
        assert!(matches!(socket.read(&mut [0]), Ok(0) | Err(_)), "the connection is closed");
    }
}

/// A connection to `to` from another address of this machine.
fn connect_from(host: [u8; 4], to: std::net::SocketAddr) -> TcpStream {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    bind(&socket, &std::net::SocketAddr::from((host, 0))).unwrap();
    connect(&socket, &to).unwrap();
    socket.into()
}

#[test]
fn a_host_with_many_connections_does_not_displace_another() {
    sums_with_strangers(Wire::Tcp, |member, refusals| {
        let address = member.process_map.processes()[0].tcp.unwrap();
        let mut quiet = TcpStream::connect(address).unwrap();
        let held: Vec<TcpStream> = (0..300).map(|_| connect_from([127, 0, 0, 2], address)).collect();
        while refusals.crowded() < 300 - KEPT + 1 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!((refusals.wrong(), refusals.late()), (0, 0), "the deadline of a preamble has not passed");
        quiet.set_nonblocking(true).unwrap();
        let state = quiet.read(&mut [0]).map_err(|error| error.kind());
        assert_eq!(state, Err(std::io::ErrorKind::WouldBlock), "the oldest connection is open");
        drop(held);
    });
}

#[test]
fn a_stranger_is_not_answered() {
    sums_with_strangers(Wire::Tcp, |member, _| {
        let answer = |stranger: Stranger| {
            let mut socket = TcpStream::connect(member.process_map.processes()[0].tcp.unwrap()).unwrap();
            socket.write_all(&stranger.bytes()).unwrap();
            let mut answer = Vec::new();
            let _ = socket.read_to_end(&mut answer);
            answer
        };
        assert_eq!(answer(Stranger::Garbage), []);
        // It says neither more nor less to anyone who greets.
        assert_eq!(answer(Stranger::WrongToken).len(), session::CHALLENGE_BYTES);
    });
}

#[test]
fn a_process_that_never_comes_is_named() {
    let timeouts = Timeouts::new(Duration::from_millis(300));
    let mut members = members(Wire::Tcp, &[vec![0], vec![1], vec![2, 3]], 1, timeouts);
    let last = members.pop();
    let opening: Vec<_> =
        members.into_iter().map(|member| std::thread::spawn(|| comm::processes::open(member).map(drop))).collect();
    let errors: Vec<_> = opening.into_iter().map(|thread| thread.join().unwrap().unwrap_err()).collect();
    drop(last);
    assert!(matches!(&errors[0], OpenError::Missing { .. }), "{}", errors[0]);
    assert!(
        errors[0].to_string().contains("no connection with process 2 (ranks 2, 3) on host host2; see what they do, or raise run.timeout_seconds = 0.3"),
        "{}",
        errors[0]
    );
}

#[test]
fn a_process_with_another_token_is_refused_by_name() {
    let timeouts = Timeouts::new(Duration::from_secs(1));
    for wire in [Wire::Tcp, Wire::SharedMemory] {
        let mut members = members(wire, &[vec![0], vec![1]], 1, timeouts);
        members[1].token = WorldToken::new([1; 32]);
        let opening: Vec<_> =
            members.into_iter().map(|member| std::thread::spawn(|| comm::processes::open(member).map(drop))).collect();
        let errors: Vec<_> =
            opening.into_iter().map(|thread| thread.join().unwrap().unwrap_err().to_string()).collect();
        assert!(errors[0].contains("no connection with process 1 (rank 1) on host host1"), "{}", errors[0]);
        assert_eq!(
            errors[1],
            "process 0 (rank 0) on host host0 shows a proof of another token: it is of another world, or not of the run"
        );
    }
}

/// The bytes of all frames of a connection of an earlier world, sent again to a later one with the same token.
#[test]
fn a_recorded_connection_is_refused() {
    let record: Arc<Mutex<Vec<u8>>> = Arc::default();
    let mut recorded = members(Wire::Tcp, &[vec![0, 1], vec![2, 3]], 1, PATIENT);
    let mut processes = recorded[1].process_map.processes().to_vec();
    let (far, near) = (processes[0].tcp.unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    processes[0].tcp = near.local_addr().ok();
    recorded[1].process_map = ProcessMap::new(processes).unwrap();
    let taken = Arc::clone(&record);
    let relay = std::thread::spawn(move || {
        let ((near, _), far) = (near.accept().unwrap(), TcpStream::connect(far).unwrap());
        let (mut from, mut to) = (far.try_clone().unwrap(), near.try_clone().unwrap());
        let back = std::thread::spawn(move || std::io::copy(&mut from, &mut to));
        let (mut from, mut to, mut block) = (near, far, [0; 4096]);
        while let Ok(read @ 1..) = from.read(&mut block) {
            taken.lock().unwrap().extend(&block[..read]);
            let _ = to.write_all(&block[..read]);
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = back.join().unwrap();
    });
    let communicators = open(recorded).into_iter().flat_map(|local| local.ends).flatten();
    let ranks: Vec<_> =
        communicators.map(|end| std::thread::spawn(|| sum_until(end, &AtomicBool::new(true)))).collect();
    ranks.into_iter().for_each(|rank| assert!(rank.join().unwrap() > 0));
    relay.join().unwrap();
    let record = record.lock().unwrap().clone();
    assert!(record.len() > 1000, "{} bytes", record.len());
    let refusals = sums_with_strangers(Wire::Tcp, |member, refusals| {
        let mut socket = TcpStream::connect(member.process_map.processes()[0].tcp.unwrap()).unwrap();
        let _ = socket.write_all(&record);
        wait_for(refusals, 1);
    });
    assert_eq!((refusals.total(), refusals.wrong()), (1, 1));
}

/// Whoever has the place of a process gets a nonce: no token, and no memory of the process that connects.
#[test]
fn a_listener_without_the_token_gets_a_nonce_only() {
    let mut members = members(Wire::SharedMemory, &[vec![0], vec![1]], 1, Timeouts::new(Duration::from_secs(1)));
    let (squatter, address) = Listeners::open_local().unwrap();
    let mut processes = members[1].process_map.processes().to_vec();
    processes[0].local = Some(address);
    members[1].process_map = ProcessMap::new(processes).unwrap();
    let connecting = members.remove(1);
    let connecting = std::thread::spawn(|| comm::processes::open(connecting).map(drop));
    let (socket, _) = squatter.accept().unwrap();
    let (mut bytes, mut space) = ([0; 1000], [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))]);
    let mut files = RecvAncillaryBuffer::new(&mut space);
    let message = recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut files, RecvFlags::empty()).unwrap();
    assert_eq!((message.bytes, files.drain().count()), (session::GREETING_BYTES, 0));
    assert!(!bytes.windows(8).any(|eight| eight == [0x5a; 8]), "the token is not in it");
    // The nonce itself, as a challenge with a proof of nothing.
    let reflected = [&bytes[..session::GREETING_BYTES], &[0; 32]].concat();
    (&socket).write_all(&reflected).unwrap();
    let error = connecting.join().unwrap().unwrap_err().to_string();
    assert!(error.contains("process 0 (rank 0) on host host0 shows a proof of another token"), "{error}");
    let mut rest = Vec::new();
    let _ = (&socket).read_to_end(&mut rest);
    assert_eq!(rest, [], "nothing follows a wrong proof");
}
