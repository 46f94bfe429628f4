//! Connections that are not of the world, while it runs.

use crate::processes::{PATIENT, communicator};
use crate::worlds::wire::{Wire, open, seats};
use comm::processes::{Listeners, LocalRanks, OpenError, Refusals, Seat, WorldToken};
use comm::{ThreadTransport, Timeouts};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The bytes that a stranger sends before it waits or goes.
#[derive(Clone, Copy)]
enum Stranger {
    Nothing,
    HalfAPreamble,
    WrongToken,
    Garbage,
}

const STRANGERS: [Stranger; 4] = [Stranger::Nothing, Stranger::HalfAPreamble, Stranger::WrongToken, Stranger::Garbage];

impl Stranger {
    fn bytes(self) -> Vec<u8> {
        match self {
            Stranger::Nothing => vec![],
            Stranger::HalfAPreamble => vec![0x5a; 31],
            Stranger::WrongToken => vec![1; 64],
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
fn sums_with_strangers(wire: Wire, strangers: impl FnOnce(&Seat, &Refusals)) -> Arc<Refusals> {
    let seats = seats(wire, &[vec![0, 1], vec![2, 3]], 1, PATIENT);
    let listens = Seat { listeners: Listeners::default(), process_map: seats[0].process_map.clone(), ..seats[0] };
    let opened = open(seats);
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
    let refusals = sums_with_strangers(Wire::Tcp, |seat, refusals| {
        let address = seat.process_map.processes()[0].tcp.unwrap();
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
    let refusals = sums_with_strangers(Wire::SharedMemory, |seat, refusals| {
        let name = &seat.process_map.processes()[0].local.as_ref().unwrap().name;
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
    let refusals = sums_with_strangers(Wire::Tcp, |seat, refusals| {
        let address = seat.process_map.processes()[0].tcp.unwrap();
        for _ in 0..300 {
            held.push(TcpStream::connect(address).unwrap());
        }
        wait_for(refusals, 300);
    });
    assert_eq!(refusals.crowded() + refusals.late(), 300);
    assert!(refusals.crowded() >= 300 - 128, "the oldest go when there are too many: {refusals:?}");
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
    sums_with_strangers(Wire::Tcp, |seat, refusals| {
        let address = seat.process_map.processes()[0].tcp.unwrap();
        let mut quiet = TcpStream::connect(address).unwrap();
        let held: Vec<TcpStream> = (0..300).map(|_| connect_from([127, 0, 0, 2], address)).collect();
        while refusals.crowded() < 300 - 127 {
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
    sums_with_strangers(Wire::Tcp, |seat, _| {
        let mut socket = TcpStream::connect(seat.process_map.processes()[0].tcp.unwrap()).unwrap();
        socket.write_all(&Stranger::WrongToken.bytes()).unwrap();
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        assert_eq!(answer, []);
    });
}

#[test]
fn a_process_that_never_comes_is_named() {
    let timeouts = Timeouts::new(Duration::from_millis(300));
    let mut seats = seats(Wire::Tcp, &[vec![0], vec![1], vec![2, 3]], 1, timeouts);
    let last = seats.pop();
    let opening: Vec<_> =
        seats.into_iter().map(|seat| std::thread::spawn(|| comm::processes::open(seat).map(drop))).collect();
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
        let mut seats = seats(wire, &[vec![0], vec![1]], 1, timeouts);
        seats[1].token = WorldToken::new([1; 32]);
        let opening: Vec<_> =
            seats.into_iter().map(|seat| std::thread::spawn(|| comm::processes::open(seat).map(drop))).collect();
        let errors: Vec<_> =
            opening.into_iter().map(|thread| thread.join().unwrap().unwrap_err().to_string()).collect();
        assert!(errors[0].contains("no connection with process 1 (rank 1) on host host1"), "{}", errors[0]);
        assert_eq!(
            errors[1],
            "process 0 (rank 0) on host host0 closed the connection: it is of another world, or its token differs"
        );
    }
}
