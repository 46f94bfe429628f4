//! Tests: a process with the right token that sends sound frames it may not send.

use super::connection::CREDIT_BYTES;
use super::frame::{
    Announcement, EAGER_LIMIT_BYTES, Frame, HEADER_BYTES, Header, MESSAGE_LIMIT_BYTES, MemoryPlace, PIECE_BYTES, Part,
    Route,
};
use super::preamble::{PREAMBLE_BYTES, Preamble, Verdict};
use super::{Listeners, LocalRanks, OpenError, Process, ProcessMap, Seat, WorldToken, open};
use crate::operation::Operation;
use crate::tag::{ChannelId, Tag};
use crate::threads::remote::{Address, Ending};
use crate::transport::{Timeouts, Transport};
use crate::{CommError, Message};
use mesh::Rank;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

pub(super) const TOKEN: WorldToken = WorldToken::new([3; 32]);
const LANES: NonZeroUsize = NonZeroUsize::new(2).unwrap();
const TIMEOUTS: Timeouts = Timeouts::new(Duration::from_secs(60));

/// The seat of process 0 with ranks 0 and 1, in a world with process 1 and rank 2.
fn seat() -> Seat {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let process = |ranks: &[usize], host: &str| Process {
        ranks: ranks.iter().copied().map(Rank).collect(),
        host: host.into(),
        tcp: tcp.local_addr().ok(),
        local: None,
    };
    let process_map = ProcessMap::new(vec![process(&[0, 1], "near"), process(&[2], "far")]).unwrap();
    let listeners = Listeners { tcp: Some(tcp), ..Listeners::default() };
    Seat { process: 0, process_map, listeners, token: TOKEN, num_lanes: LANES, timeouts: TIMEOUTS }
}

/// Process 0, and a socket on which the test plays process 1.
pub(super) fn world() -> (LocalRanks, TcpStream) {
    let seat = seat();
    let (address, fingerprint) = (seat.process_map.processes()[0].tcp.unwrap(), seat.process_map.fingerprint(2));
    let opening = std::thread::spawn(|| open(seat));
    let mut socket = TcpStream::connect(address).unwrap();
    let preamble = Preamble { verdict: Verdict::Welcome, from: 1, to: 0, fingerprint };
    socket.write_all(&preamble.encode(&TOKEN)).unwrap();
    let mut answer = [0; PREAMBLE_BYTES];
    socket.read_exact(&mut answer).unwrap();
    assert_eq!(Preamble::decode(&answer, &TOKEN).unwrap().verdict, Verdict::Welcome);
    (opening.join().unwrap().unwrap(), socket)
}

fn tag() -> Tag {
    Tag { channel: ChannelId::from_number(0), number: 0 }
}

pub(super) fn address(source: usize, destination: usize, lane: usize) -> Address {
    let operation = Operation::PointToPoint;
    Address { source: Rank(source), destination: Rank(destination), lane, tag: tag(), operation }
}

pub(super) fn encoded(frame: Frame, sequence: u64, payload: &[u8]) -> Vec<u8> {
    [&Header::new(frame, sequence, payload).encode()[..], payload].concat()
}

/// The error of a rank that waits while process 1 sends `frames`.
fn error_after(frames: &[(Frame, &[u8])]) -> String {
    let bytes: Vec<u8> =
        frames.iter().zip(0..).flat_map(|((frame, payload), number)| encoded(*frame, number, payload)).collect();
    error_after_bytes(&bytes)
}

fn error_after_bytes(bytes: &[u8]) -> String {
    let (ranks, mut socket) = world();
    let end = &ranks.ends[0][0];
    // A large message to process 1 that it may ask for.
    let loan = end.post_loan(Rank(2), tag(), Operation::PointToPoint, Arc::new(vec![1u8; 100_000])).unwrap();
    socket.write_all(bytes).unwrap();
    let error = end.wait_send(loan).unwrap_err();
    assert!(matches!(error, CommError::Aborted { by: Rank(2), .. }), "{error}");
    error.to_string()
}

fn part(message: u64, offset: u64, len: u32) -> Part {
    Part { message, offset, len, slot: 0 }
}

fn announce(to: Address, len: u64) -> Frame {
    Frame::Announce(to, Announcement { message: 0, len, at: 0 })
}

#[test]
fn every_frame_out_of_place_is_named_with_rank_and_host() {
    let piece = PIECE_BYTES as u64;
    let cases: [(Frame, &[u8], &str); 15] = [
        (Frame::Eager(address(1, 0, 0)), &[], "a message in the name of a rank of another process"),
        (Frame::Eager(address(9, 0, 0)), &[], "a message in the name of a rank of another process"),
        (Frame::Eager(address(2, 2, 0)), &[], "a message for a rank that is not in this process"),
        (Frame::Eager(address(2, 7, 0)), &[], "a message for a rank that is not in this process"),
        (announce(address(2, 0, 2), 1), &[], "a message on a lane that this world does not have"),
        (Frame::Grant(part(1, 0, 1)), &[], "the number of a message that was never sent"),
        (Frame::Grant(part(0, 2 * piece, 1)), &[], "a request for bytes outside of a message"),
        (Frame::Grant(part(0, piece, 65_536)), &[], "a request for bytes outside of a message"),
        (Frame::Piece(part(0, 0, 1), Route::Inline), &[1], "a piece of a message that was not asked for"),
        (Frame::Piece(part(0, 0, 1), Route::Shared), &[], "a piece by the other way of this connection"),
        (Frame::Finish(5, Ending::Read), &[], "the number of a message that was never sent"),
        (Frame::Credit(1), &[], "more room for small messages than it had"),
        (Frame::Leave(Rank(0), 0), &[], "a message in the name of a rank of another process"),
        (Frame::Memory(MemoryPlace { process: 1, at: 8, mark: 1 }), &[], "an address of its memory over a network"),
        (Frame::Abort(Rank(3)), b"x", "the failure of a rank that is not in the world"),
    ];
    for (frame, payload, expected) in cases {
        let error = error_after(&[(frame, payload)]);
        let expected = format!("rank 2 failed: process 1 (rank 2) on host far sent {expected}");
        assert!(error.ends_with(&expected), "{frame:?}: {error}");
    }
}

#[test]
fn more_small_messages_than_there_is_room_for_are_named() {
    let payload = vec![0; EAGER_LIMIT_BYTES];
    let frames = vec![(Frame::Eager(address(2, 0, 0)), &payload[..]); CREDIT_BYTES / EAGER_LIMIT_BYTES];
    assert!(error_after(&frames).ends_with("on host far sent more small messages than it had room for"));
}

#[test]
fn frames_that_are_lost_doubled_or_altered_are_named() {
    let frame = Frame::Eager(address(2, 0, 0));
    let twice = encoded(frame, 0, &[1]).repeat(2);
    assert!(error_after_bytes(&twice).ends_with("sent frame number 0 where number 1 was due"));
    assert!(error_after_bytes(&encoded(frame, 1, &[1])).ends_with("sent frame number 1 where number 0 was due"));
    let mut altered = encoded(frame, 0, &[1, 2, 3]);
    altered[HEADER_BYTES + 1] ^= 4;
    assert!(error_after_bytes(&altered).contains("on host far sent a payload with checksum"));
    assert!(error_after_bytes(&[b'x'; HEADER_BYTES]).contains("sent a header that begins with 0x78787878 instead of"));
}

#[test]
fn an_announced_length_is_compared_and_not_allocated() {
    let (ranks, mut socket) = world();
    socket.write_all(&encoded(announce(address(2, 0, 0), MESSAGE_LIMIT_BYTES), 0, &[])).unwrap();
    let received = ranks.ends[0][0].receive(&[Rank(2)], tag(), Operation::PointToPoint, 8, &mut |_, _| panic!("read"));
    let error = received.unwrap_err();
    assert!(matches!(error, CommError::Mismatch { peer_bytes: 0x100_0000_0000, .. }), "{error}");
}

#[test]
fn a_connection_that_closes_without_a_goodbye_names_rank_and_host() {
    let (ranks, socket) = world();
    drop(socket);
    let end = &ranks.ends[1][1];
    let received = end.receive(&[Rank(2)], tag(), Operation::PointToPoint, 8, &mut |_, _| panic!("read"));
    assert_eq!(
        received.unwrap_err().to_string(),
        "rank 1 stopped because rank 2 failed: process 1 (rank 2) on host far closed the connection without a goodbye"
    );
    let bytes = [0; 4];
    let message = Message { to: &[Rank(2)], tag: tag(), operation: Operation::PointToPoint, bytes: &bytes };
    assert!(end.post_copy(message).is_err());
}

#[test]
fn a_peer_learns_why_its_bytes_ended_the_world_though_more_of_them_follow() {
    let (ranks, mut socket) = world();
    let writing = socket.try_clone().unwrap();
    let rest = std::thread::spawn(move || { writing }.write_all(&vec![b'x'; 300_000]));
    let mut heard = Vec::new();
    socket.read_to_end(&mut heard).unwrap();
    let abort = Header::decode(heard.first_chunk().unwrap()).unwrap();
    assert_eq!(abort.frame, Frame::Abort(Rank(2)));
    let reason = String::from_utf8_lossy(&heard[HEADER_BYTES..]);
    assert!(reason.contains("sent a header that begins with 0x78787878"), "{reason}");
    rest.join().unwrap().unwrap();
    drop(ranks);
}

#[test]
fn a_receive_that_ends_early_keeps_its_places_until_they_are_written() {
    let (ranks, mut socket) = world();
    let len = 3 * PIECE_BYTES;
    let total = super::open::num_pieces(&seat().process_map, 0);
    socket.write_all(&encoded(announce(address(2, 0, 0), len as u64), 0, &[])).unwrap();
    let failure = ranks.failure.clone();
    let mut headers = [0; 3 * HEADER_BYTES];
    std::thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let fold = &mut |_: usize, _: &dyn crate::Chunks| {};
            ranks.ends[0][0].receive(&[Rank(2)], tag(), Operation::PointToPoint, len, fold)
        });
        socket.read_exact(&mut headers).unwrap();
        failure.abort(crate::AbortCause { rank: Rank(1), description: "the test ends it".into() });
        let error = receiving.join().unwrap().unwrap_err();
        assert!(error.to_string().ends_with("rank 1 failed: the test ends it"), "{error}");
    });
    assert_eq!(total, 64);
    let asked = Header::decode(headers.first_chunk().unwrap()).unwrap();
    assert!(matches!(asked.frame, Frame::Grant(Part { message: 0, offset: 0, .. })), "{asked:?}");
    // The late pieces are read, and thrown away.
    for (number, header) in (1..).zip(headers.chunks(HEADER_BYTES)) {
        let Frame::Grant(part) = Header::decode(header.first_chunk().unwrap()).unwrap().frame else { panic!() };
        let piece = Frame::Piece(part, Route::Inline);
        socket.write_all(&encoded(piece, number, &vec![1; part.len as usize])).unwrap();
    }
    let mut finish = [0; 2 * HEADER_BYTES + 16];
    socket.read_exact(&mut finish).unwrap();
    let abort = Header::decode(finish.first_chunk().unwrap()).unwrap();
    assert_eq!(abort.frame, Frame::Abort(Rank(1)));
    let finish = Header::decode(finish[HEADER_BYTES + 16..].first_chunk().unwrap()).unwrap();
    assert_eq!(finish.frame, Frame::Finish(0, Ending::Read));
}

#[test]
fn processes_of_other_worlds_are_turned_away_by_name() {
    let (ranks, socket) = world();
    let listener = socket.peer_addr().ok();
    let process_map = seat().process_map;
    assert_eq!(ranks.refusals.total(), 0);
    // A second process 1, of this world and of another one.
    let cases: [(Vec<Process>, WorldToken, &str); 3] = [
        (process_map.processes().to_vec(), TOKEN, "has a connection of this process already"),
        (process_map.processes()[..2].iter().rev().cloned().collect(), TOKEN, "has another process map"),
        (process_map.processes().to_vec(), WorldToken::new([4; 32]), "closed the connection: it is of another world"),
    ];
    for (mut processes, token, expected) in cases {
        processes[0].tcp = listener;
        let process_map = ProcessMap::new(processes).unwrap();
        let listeners = Listeners::default();
        let seat = Seat { process: 1, process_map, listeners, token, num_lanes: LANES, timeouts: TIMEOUTS };
        let refused = open(seat).map(drop).unwrap_err();
        assert!(matches!(refused, OpenError::Refused { .. }), "{refused}");
        assert!(refused.to_string().contains(expected), "{refused}");
    }
    assert_eq!((ranks.refusals.wrong(), ranks.refusals.not_expected()), (1, 2));
    assert!(ranks.failure.cause().is_none());
}
