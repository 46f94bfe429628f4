//! Tests: a process with the right token that sends sound frames it may not send.

use super::connection::CREDIT_BYTES;
use super::frame::{
    Announcement, EAGER_LIMIT_BYTES, Frame, HEADER_BYTES, Header, MESSAGE_LIMIT_BYTES, MemoryPlace, PIECE_BYTES, Part,
    Route,
};
use super::pieces::Pieces;
use super::preamble::{PREAMBLE_BYTES, Preamble, Verdict};
use super::{Listeners, LocalAddress, LocalRanks, OpenError, Process, ProcessMap, WorldMember, WorldToken, open};
use crate::operation::Operation;
use crate::tag::{ChannelId, Tag};
use crate::threads::remote::{Address, Ending};
use crate::transport::{Timeouts, Transport};
use crate::{CommError, Message};
use mesh::Rank;
use rustix::fs::fstat;
use session::{CHALLENGE_BYTES, Challenged, Connecting, Opener, Sealer, Service, Session};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::num::NonZeroUsize;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::Arc;
use std::time::Duration;

const TOKEN: WorldToken = WorldToken::new([3; 32]);
const LANES: NonZeroUsize = NonZeroUsize::new(2).unwrap();
const TIMEOUTS: Timeouts = Timeouts::new(Duration::from_secs(60));

/// Process 0 with ranks 0 and 1, in a world with process 1 and rank 2.
fn member() -> WorldMember {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let process = |ranks: &[usize], host: &str| Process {
        ranks: ranks.iter().copied().map(Rank).collect(),
        host: host.into(),
        tcp: tcp.local_addr().ok(),
        local: None,
    };
    let process_map = ProcessMap::new(vec![process(&[0, 1], "near"), process(&[2], "far")]).unwrap();
    let listeners = Listeners { tcp: Some(tcp), ..Listeners::default() };
    WorldMember { process: 0, process_map, listeners, token: TOKEN, num_lanes: LANES, timeouts: TIMEOUTS }
}

/// Both ends of a session.
pub(super) fn sessions() -> (Session, Session) {
    let connecting = Connecting::new(TOKEN.secret(), Service::World).unwrap();
    let challenged = Challenged::new(TOKEN.secret(), Service::World, connecting.greeting()).unwrap();
    let (proof, near) = connecting.answer(&challenged.challenge()).unwrap().unwrap();
    (near, challenged.admit(&proof).unwrap())
}

/// Process 1, played by the test.
pub(super) struct Peer {
    pub(super) socket: TcpStream,
    sealer: Sealer,
    opener: Opener,
}

impl Peer {
    /// Sends a frame as process 1 does.
    pub(super) fn send(&mut self, frame: Frame, payload: &[u8]) -> std::io::Result<()> {
        let bytes = self.sealed(frame, payload);
        self.socket.write_all(&bytes)
    }

    /// The bytes of the next frame.
    fn sealed(&mut self, frame: Frame, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        Header::new(frame, payload).seal(payload, &mut self.sealer, &mut bytes);
        bytes
    }

    /// The next frame of process 0.
    fn receive(&mut self) -> (Frame, Vec<u8>) {
        let mut head = [0; HEADER_BYTES];
        self.socket.read_exact(&mut head).unwrap();
        let (fields, seal) = self.opener.open_head(&mut head).unwrap();
        let header = Header::decode(fields).unwrap();
        let mut payload = vec![0; header.payload_len as usize];
        self.socket.read_exact(&mut payload).unwrap();
        self.opener.open_payload(&seal, &mut payload).unwrap();
        (header.frame, payload)
    }
}

/// Process 0, and process 1 as the test plays it.
pub(super) fn world() -> (LocalRanks, Peer) {
    let member = member();
    let (address, fingerprint) = (member.process_map.processes()[0].tcp.unwrap(), member.process_map.fingerprint(2));
    let opening = std::thread::spawn(|| open(member));
    let mut socket = TcpStream::connect(address).unwrap();
    let connecting = Connecting::new(TOKEN.secret(), Service::World).unwrap();
    socket.write_all(connecting.greeting()).unwrap();
    let mut challenge = [0; CHALLENGE_BYTES];
    socket.read_exact(&mut challenge).unwrap();
    let (proof, Session { mut sealer, mut opener }) = connecting.answer(&challenge).unwrap().unwrap();
    let preamble = Preamble { verdict: Verdict::Welcome, from: 1, to: 0, fingerprint, file: 0 };
    socket.write_all(&[&proof[..], &preamble.seal(&mut sealer)].concat()).unwrap();
    let mut answer = [0; PREAMBLE_BYTES];
    socket.read_exact(&mut answer).unwrap();
    let (answer, _) = opener.open_head(&mut answer).unwrap();
    assert_eq!(Preamble::decode(answer).unwrap().verdict, Verdict::Welcome);
    (opening.join().unwrap().unwrap(), Peer { socket, sealer, opener })
}

fn tag() -> Tag {
    Tag { channel: ChannelId::from_number(0), number: 0 }
}

pub(super) fn address(source: usize, destination: usize, lane: usize) -> Address {
    let operation = Operation::PointToPoint;
    Address { source: Rank(source), destination: Rank(destination), lane, tag: tag(), operation }
}

/// The error of a rank that waits while process 1 sends `frames`.
fn error_after(frames: &[(Frame, &[u8])]) -> String {
    error_after_bytes(|peer| frames.iter().flat_map(|(frame, payload)| peer.sealed(*frame, payload)).collect())
}

/// The error of a rank that waits while `bytes` of process 1 come.
fn error_after_bytes(bytes: impl FnOnce(&mut Peer) -> Vec<u8>) -> String {
    let (ranks, mut peer) = world();
    let end = &ranks.ends[0][0];
    // A large message to process 1 that it may ask for.
    let loan = end.post_loan(Rank(2), tag(), Operation::PointToPoint, Arc::new(vec![1u8; 100_000])).unwrap();
    let bytes = bytes(&mut peer);
    peer.socket.write_all(&bytes).unwrap();
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

/// Frame 0 is the preamble.
#[test]
fn frames_that_are_lost_doubled_reordered_or_altered_are_named() {
    let frame = Frame::Eager(address(2, 0, 0));
    let doubled = error_after_bytes(|peer| peer.sealed(frame, &[1]).repeat(2));
    assert!(
        doubled.contains("on host far sent frame 1 where frame 2 was due: frames were lost, repeated"),
        "{doubled}"
    );
    let lost = error_after_bytes(|peer| [peer.sealed(frame, &[1]), peer.sealed(frame, &[2])][1].clone());
    assert!(lost.contains("on host far sent frame 2 where frame 1 was due"), "{lost}");
    let reordered = error_after_bytes(|peer| {
        let frames = [peer.sealed(frame, &[1]), peer.sealed(frame, &[2])];
        [&frames[1][..], &frames[0]].concat()
    });
    assert!(reordered.contains("on host far sent frame 2 where frame 1 was due"), "{reordered}");
    for at in [0, 30, HEADER_BYTES - 1, HEADER_BYTES + 1] {
        let altered = error_after_bytes(|peer| {
            let mut bytes = peer.sealed(frame, &[1, 2, 3]);
            bytes[at] ^= 4;
            bytes
        });
        assert!(altered.contains("on host far sent frame 1 with a seal that is not that of its bytes"), "{altered}");
    }
    let foreign = error_after_bytes(|_| vec![b'x'; HEADER_BYTES]);
    assert!(foreign.contains("on host far sent frame 1 with a seal that is not that of its bytes"), "{foreign}");
}

#[test]
fn a_frame_that_comes_back_to_its_sender_is_named() {
    let (ranks, mut peer) = world();
    let end = &ranks.ends[0][0];
    let loan = end.post_loan(Rank(2), tag(), Operation::PointToPoint, Arc::new(vec![1u8; 100_000])).unwrap();
    let mut own = [0; HEADER_BYTES];
    peer.socket.read_exact(&mut own).unwrap();
    peer.socket.write_all(&own).unwrap();
    let error = end.wait_send(loan).unwrap_err().to_string();
    assert!(error.contains("sent frame 1 with a seal that is not that of its bytes"), "{error}");
    assert!(error.contains("or are of another connection or direction"), "{error}");
}

#[test]
fn an_announced_length_is_compared_and_not_allocated() {
    let (ranks, mut peer) = world();
    peer.send(announce(address(2, 0, 0), MESSAGE_LIMIT_BYTES), &[]).unwrap();
    let received = ranks.ends[0][0].receive(&[Rank(2)], tag(), Operation::PointToPoint, 8, &mut |_, _| panic!("read"));
    let error = received.unwrap_err();
    assert!(matches!(error, CommError::Mismatch { peer_bytes: 0x100_0000_0000, .. }), "{error}");
}

#[test]
fn a_connection_that_closes_without_a_goodbye_names_rank_and_host() {
    let (ranks, peer) = world();
    drop(peer);
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
    let (ranks, mut peer) = world();
    let writing = peer.socket.try_clone().unwrap();
    let rest = std::thread::spawn(move || { writing }.write_all(&vec![b'x'; 300_000]));
    let (abort, reason) = peer.receive();
    assert_eq!(abort, Frame::Abort(Rank(2)));
    let reason = String::from_utf8_lossy(&reason);
    assert!(reason.contains("sent frame 1 with a seal that is not that of its bytes"), "{reason}");
    peer.socket.read_to_end(&mut Vec::new()).unwrap();
    rest.join().unwrap().unwrap();
    drop(ranks);
}

#[test]
fn a_receive_that_ends_early_keeps_its_places_until_they_are_written() {
    let (ranks, mut peer) = world();
    let len = 3 * PIECE_BYTES;
    let total = super::open::num_pieces(&member().process_map, 0);
    peer.send(announce(address(2, 0, 0), len as u64), &[]).unwrap();
    let failure = ranks.failure.clone();
    let asked: Vec<Frame> = std::thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let fold = &mut |_: usize, _: &dyn crate::Chunks| {};
            ranks.ends[0][0].receive(&[Rank(2)], tag(), Operation::PointToPoint, len, fold)
        });
        let asked = (0..3).map(|_| peer.receive().0).collect();
        failure.abort(crate::AbortCause { rank: Rank(1), description: "the test ends it".into() });
        let error = receiving.join().unwrap().unwrap_err();
        assert!(error.to_string().ends_with("rank 1 failed: the test ends it"), "{error}");
        asked
    });
    assert_eq!(total, 64);
    assert!(matches!(asked[0], Frame::Grant(Part { message: 0, offset: 0, .. })), "{asked:?}");
    // The late pieces are read, and thrown away.
    for asked in asked {
        let Frame::Grant(part) = asked else { panic!("{asked:?}") };
        peer.send(Frame::Piece(part, Route::Inline), &vec![1; part.len as usize]).unwrap();
    }
    assert_eq!(peer.receive(), (Frame::Abort(Rank(1)), b"the test ends it".to_vec()));
    assert_eq!(peer.receive().0, Frame::Finish(0, Ending::Read));
}

#[test]
fn processes_of_other_worlds_are_turned_away_by_name() {
    let (ranks, peer) = world();
    let listener = peer.socket.peer_addr().ok();
    let process_map = member().process_map;
    assert_eq!(ranks.refusals.total(), 0);
    // A second process 1, of this world and of another one.
    let cases: [(Vec<Process>, WorldToken, &str); 3] = [
        (process_map.processes().to_vec(), TOKEN, "has a connection of this process already"),
        (process_map.processes()[..2].iter().rev().cloned().collect(), TOKEN, "has another process map"),
        (process_map.processes().to_vec(), WorldToken::new([4; 32]), "shows a proof of another token"),
    ];
    for (mut processes, token, expected) in cases {
        processes[0].tcp = listener;
        let process_map = ProcessMap::new(processes).unwrap();
        let listeners = Listeners::default();
        let member = WorldMember { process: 1, process_map, listeners, token, num_lanes: LANES, timeouts: TIMEOUTS };
        let refused = open(member).map(drop).unwrap_err();
        assert!(matches!(refused, OpenError::Refused { .. }), "{refused}");
        assert!(refused.to_string().contains(expected), "{refused}");
    }
    // A process that hears the proof of another token goes, which is noticed later.
    while ranks.refusals.total() < 3 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!((ranks.refusals.wrong(), ranks.refusals.not_expected()), (1, 2));
    assert!(ranks.failure.cause().is_none());
}

/// A relay between two processes of a machine that passes the preamble on and puts a file of its own in the place of
/// the one that came with it.
#[test]
fn another_file_in_the_place_of_a_peers_memory_is_refused() {
    for is_own in [true, false] {
        let (local, address) = Listeners::open_local().unwrap();
        let process =
            |rank, host: &str, local| Process { ranks: vec![Rank(rank)], host: host.into(), tcp: None, local };
        let name = address.name.clone();
        let other = LocalAddress { name: b"nobody".to_vec(), ..address.clone() };
        let process_map =
            ProcessMap::new(vec![process(0, "near", Some(address)), process(1, "far", Some(other))]).unwrap();
        let fingerprint = process_map.fingerprint(2);
        let listeners = Listeners { local: Some(local), ..Listeners::default() };
        let timeouts = Timeouts::new(Duration::from_secs(if is_own { 60 } else { 1 }));
        let member = WorldMember { process: 0, process_map, listeners, token: TOKEN, num_lanes: LANES, timeouts };
        let opening = std::thread::spawn(|| open(member).map(drop));
        let mut socket = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
        let connecting = Connecting::new(TOKEN.secret(), Service::World).unwrap();
        socket.write_all(connecting.greeting()).unwrap();
        let mut challenge = [0; CHALLENGE_BYTES];
        socket.read_exact(&mut challenge).unwrap();
        let (proof, mut session) = connecting.answer(&challenge).unwrap().unwrap();
        let (own, others) = (Pieces::new(1).unwrap(), Pieces::new(1).unwrap());
        let file = fstat(own.file()).unwrap().st_ino;
        let preamble = Preamble { verdict: Verdict::Welcome, from: 1, to: 0, fingerprint, file };
        let bytes = [&proof[..], &preamble.seal(&mut session.sealer)].concat();
        let sent = if is_own { own.file() } else { others.file() };
        super::gate::send(&socket.try_clone().unwrap().into(), &bytes, Some(sent)).unwrap();
        let mut answer = Vec::new();
        let _ = (&socket).take(PREAMBLE_BYTES as u64).read_to_end(&mut answer);
        assert_eq!(answer.len(), if is_own { PREAMBLE_BYTES } else { 0 });
        drop(socket);
        assert_eq!(opening.join().unwrap().is_ok(), is_own);
    }
}
