//! Others at the port of process 0, or on the way to it: they learn no secret, join no run and change no message.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::tests::rig::{self, LONG, Meeting, QUICK, introduction, token};
use launcher::Address;
use rendezvous::{Control, Listening, ProcessFailure, RendezvousError, meet};
use session::{CHALLENGE_BYTES, GREETING_BYTES, PROOF_BYTES};

/// Bytes that come over a connection, up to a number of them or to its end.
fn first(stream: &mut TcpStream, most: u64) -> Vec<u8> {
    let mut bytes = vec![];
    let _ = stream.take(most).read_to_end(&mut bytes);
    bytes
}

/// The token, and the text of an introduction.
fn holds_no_secret(bytes: &[u8]) {
    assert!(!bytes.windows(8).any(|eight| eight == [0x5a; 8]), "the token");
    assert!(!bytes.windows(6).any(|six| six == b"binary"), "an introduction");
}

/// The bytes that a process with the right token sends to whoever has the port of process 0 and answers with `answer`,
/// and its error.
fn said_to(answer: &[u8]) -> (Vec<u8>, String) {
    let squatter = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = rig::address(squatter.local_addr().expect("an address").port());
    let connection = std::thread::spawn(move || meet(Some(&address), &token(), introduction(1, 2), QUICK).map(drop));
    let (mut stream, _) = squatter.accept().expect("a process");
    let mut said = first(&mut stream, GREETING_BYTES as u64);
    stream.write_all(answer).expect("sent");
    if answer.is_empty() {
        drop(squatter);
        stream.shutdown(Shutdown::Write).expect("a socket");
    }
    said.extend(first(&mut stream, u64::MAX));
    (said, connection.join().expect("no panic").expect_err("no process 0").to_string())
}

#[test]
fn a_squatter_hears_a_nonce_only_and_the_message_says_who_it_may_be() {
    let (said, error) = said_to(&[]);
    assert_eq!(said.len(), GREETING_BYTES);
    holds_no_secret(&said);
    assert!(error.starts_with("process 1 got no proof of the token from 127.0.0.1:"), "{error}");
    let advice = "it closed the connection; see the messages of process 0, and whether another program, maybe of another \
                  user, has its port. The token can stay: this process has not shown it";
    assert!(error.ends_with(advice), "{error}");
    let wrong = [&session::unproven_greeting(session::Service::Meeting)[..], &[9; PROOF_BYTES]].concat();
    let (said, error) = said_to(&wrong);
    assert_eq!(said.len(), GREETING_BYTES, "nothing follows a wrong proof");
    assert!(error.contains(" got a wrong proof from "), "{error}");
    let (said, error) = said_to(b"HTTP/1.1 400 Bad Request");
    assert_eq!(said.len(), GREETING_BYTES);
    assert!(error.contains(": the bytes are not those of a pleach process; see whether another program"), "{error}");
}

/// A relay between process 1 and process 0 that keeps what it sees, and changes it.
struct Relay {
    address: Address,
    seen: Arc<Mutex<[Vec<u8>; 2]>>,
    thread: JoinHandle<()>,
}

impl Relay {
    /// `change` gets the way (0 is to process 0), the offset of the first byte, and the bytes, which it may change,
    /// lengthen and shorten.
    fn new(far: Address, change: impl Fn(usize, usize, &mut Vec<u8>) + Send + Sync + 'static) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = rig::address(listener.local_addr().expect("an address").port());
        let seen: Arc<Mutex<[Vec<u8>; 2]>> = Arc::default();
        let (keeper, change) = (Arc::clone(&seen), Arc::new(change));
        let thread = std::thread::spawn(move || {
            let (near, _) = listener.accept().expect("a process");
            let far = TcpStream::connect((far.host.as_str(), far.port)).expect("process 0");
            let ways = [(&near, &far), (&far, &near)]
                .map(|(from, to)| (from.try_clone().expect("a socket"), to.try_clone().expect("a socket")));
            let threads = ways.into_iter().enumerate().map(|(way, (mut from, mut to))| {
                let (keeper, change) = (Arc::clone(&keeper), Arc::clone(&change));
                std::thread::spawn(move || {
                    let mut block = [0; 4096];
                    while let Ok(read @ 1..) = from.read(&mut block) {
                        let mut bytes = block[..read].to_vec();
                        let mut seen = keeper.lock().expect("no panic");
                        let offset = seen[way].len();
                        seen[way].extend(&bytes);
                        drop(seen);
                        change(way, offset, &mut bytes);
                        if to.write_all(&bytes).is_err() {
                            break;
                        }
                    }
                    let _ = (to.shutdown(Shutdown::Both), from.shutdown(Shutdown::Both));
                })
            });
            threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().expect("no panic"));
        });
        Relay { address, seen, thread }
    }
}

/// Process 0 and process 1, which meet by way of a relay.
fn by_relay(
    change: impl Fn(usize, usize, &mut Vec<u8>) + Send + Sync + 'static,
) -> (Result<Control, RendezvousError>, Result<Control, RendezvousError>, Relay) {
    let listening = Listening::bind(&rig::address(0)).expect("a free port");
    let relay = Relay::new(rig::address(listening.local_address().port()), change);
    let first = std::thread::spawn(move || listening.meet(&token(), introduction(0, 2), QUICK));
    let second = meet(Some(&relay.address), &token(), introduction(1, 2), QUICK);
    (first.join().expect("no panic"), second, relay)
}

#[test]
fn a_relay_that_passes_everything_on_learns_no_secret() {
    let (first, second, relay) = by_relay(|_, _, _| ());
    rig::finish(vec![first.expect("met"), second.expect("met")]);
    relay.thread.join().expect("no panic");
    let seen = relay.seen.lock().expect("no panic").concat();
    assert!(seen.len() > GREETING_BYTES + CHALLENGE_BYTES + PROOF_BYTES + 300, "{}", seen.len());
    holds_no_secret(&seen);
}

/// The session that a relay has recorded, sent again to a later run with the same token before its process 1 comes.
#[test]
fn a_recorded_session_is_refused_by_a_later_run() {
    let (first, second, relay) = by_relay(|_, _, _| ());
    rig::finish(vec![first.expect("met"), second.expect("met")]);
    relay.thread.join().expect("no panic");
    let [recorded, _] = relay.seen.lock().expect("no panic").clone();
    let mut meeting = Meeting::of(2);
    meeting.times.rendezvous = LONG;
    let address = meeting.address();
    let mut stream = TcpStream::connect((address.host.as_str(), address.port)).expect("connected");
    stream.write_all(&recorded).expect("sent");
    let met = std::thread::spawn(move || meeting.run());
    assert!(first_len(&mut stream) <= CHALLENGE_BYTES, "a challenge to which the record has no answer");
    let controls: Vec<Control> = met.join().expect("no panic").into_iter().map(|met| met.expect("met")).collect();
    rig::finish(controls);
}

fn first_len(stream: &mut TcpStream) -> usize {
    first(stream, u64::MAX).len()
}

#[test]
fn a_changed_byte_of_the_handshake_lets_nobody_join() {
    let introduced = GREETING_BYTES + PROOF_BYTES;
    for (way, at) in
        [(0, 6), (0, 7), (0, 20), (0, 50), (0, introduced + 3), (0, introduced + 60), (1, 7), (1, 20), (1, 60)]
    {
        let (first, second, relay) = by_relay(move |of, offset, bytes| {
            let byte = at.checked_sub(offset).filter(|_| of == way).and_then(|at: usize| bytes.get_mut(at));
            byte.into_iter().for_each(|byte| *byte ^= 0x10);
        });
        assert!(first.is_err() && second.is_err(), "way {way}, byte {at}");
        drop(relay);
    }
}

/// The failures of both processes where a relay changes records of the control channel after the meeting.
fn failures(change: impl Fn(usize, &mut Vec<u8>) + Send + Sync + 'static) -> [String; 2] {
    // How many stretches of bytes to process 0 were changed, once they are.
    let changed: Arc<Mutex<Option<usize>>> = Arc::default();
    let counter = Arc::clone(&changed);
    let (first, second, relay) = by_relay(move |way, _, bytes| {
        if let Some(count) = &mut *counter.lock().expect("no panic") {
            change(way, bytes);
            *count += usize::from(way == 0);
        }
    });
    let controls = [first.expect("met"), second.expect("met")];
    *changed.lock().expect("no panic") = Some(0);
    controls[1].send_to_first("one", vec![1; 100]).expect("sent");
    controls[1].send_to_first("two", vec![2; 100]).expect("sent");
    while *changed.lock().expect("no panic") == Some(0) {
        std::thread::yield_now();
    }
    controls[0].send_to(1, "three", vec![3; 100]).expect("sent");
    let heard = controls.each_ref().map(|control| {
        let (sender, receiver) = std::sync::mpsc::channel();
        control.on_failure(move |failure: &ProcessFailure| drop(sender.send(failure.to_string())));
        receiver.recv_timeout(LONG).expect("a failure")
    });
    for (topic, content) in [("one", 1), ("two", 2)] {
        let heard = controls[0].receive(topic, std::time::Duration::ZERO).ok().flatten();
        assert!(heard.is_none_or(|(_, bytes)| bytes == [content; 100]), "a wrong message is heard");
    }
    drop(controls);
    drop(relay);
    heard
}

#[test]
fn records_that_are_changed_dropped_repeated_reordered_or_reflected_are_named() {
    let is_there = |way: usize| way == 0;
    let [flipped, _] = failures(move |way, bytes| {
        if is_there(way) {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        }
    });
    let unreadable = "process 1 (host h1): the control channel cannot be understood: it sent frame ";
    assert!(flipped.starts_with(unreadable) && flipped.contains("changed on their way"), "{flipped}");
    let [repeated, _] = failures(move |way, bytes| {
        if is_there(way) {
            *bytes = bytes.repeat(2);
        }
    });
    assert!(repeated.starts_with(unreadable) && repeated.contains("were lost, repeated or reordered"), "{repeated}");
    let number = Mutex::new(0);
    let [dropped, _] = failures(move |way, bytes| {
        let mut number = number.lock().expect("no panic");
        *number += usize::from(is_there(way));
        if is_there(way) && *number == 1 {
            // The first record, of 100 bytes with a name and the head.
            let len = 44 + 6 + 4 + 100;
            *bytes = bytes.split_off(len.min(bytes.len()));
        }
    });
    assert!(dropped.starts_with(unreadable) && dropped.contains("were lost, repeated or reordered"), "{dropped}");
    let kept = Mutex::new(vec![]);
    let [_, reflected] = failures(move |way, bytes| {
        let mut kept = kept.lock().expect("no panic");
        if is_there(way) {
            kept.extend(bytes.clone());
        } else {
            *bytes = std::mem::take(&mut *kept);
        }
    });
    let unreadable = "process 0 (host h0): the control channel cannot be understood: it sent frame ";
    assert!(
        reflected.starts_with(unreadable) && reflected.contains("of another connection or direction"),
        "{reflected}"
    );
}

/// The proof of process 0 to another nonce does not convince another process.
#[test]
fn a_proof_to_another_nonce_does_not_convince_who_joins() {
    let squatter = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = rig::address(squatter.local_addr().expect("an address").port());
    let connection = std::thread::spawn(move || meet(Some(&address), &token(), introduction(1, 2), QUICK).map(drop));
    let (mut stream, _) = squatter.accept().expect("a process");
    let greeting = first(&mut stream, GREETING_BYTES as u64);
    // The challenge of the true process 0 to another nonce, got by a connection to it.
    let listening = Listening::bind(&rig::address(0)).expect("a free port");
    let far = listening.local_address();
    let process_0 = std::thread::spawn(move || listening.meet(&token(), introduction(0, 2), QUICK).map(drop));
    let mut asked = TcpStream::connect(far).expect("process 0");
    let mut other = greeting.clone();
    other[GREETING_BYTES - 1] ^= 1;
    asked.write_all(&other).expect("sent");
    let challenge = first(&mut asked, CHALLENGE_BYTES as u64);
    assert_eq!(challenge.len(), CHALLENGE_BYTES);
    stream.write_all(&challenge).expect("sent");
    assert_eq!(first_len(&mut stream), 0, "nothing follows a wrong proof");
    let error = connection.join().expect("no panic").expect_err("no process 0").to_string();
    assert!(error.contains(" got a wrong proof from "), "{error}");
    assert!(process_0.join().expect("no panic").is_err());
}

/// Set in the process of another user, which is this program, started again.
const SQUATTER: &str = "RENDEZVOUS_TEST_SQUATTER";
/// `nobody`.
const NOBODY: u32 = 65_534;

/// The process of another user: it has the port of process 0 first and keeps all bytes that come, then sends them to
/// the true process 0.
fn squat() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    println!("squats at {}", listener.local_addr().expect("an address").port());
    let (mut stream, _) = listener.accept().expect("a process");
    let mut record = first(&mut stream, GREETING_BYTES as u64);
    // It has no proof, so it tries one of nothing.
    let answer = [&session::unproven_greeting(session::Service::Meeting)[..], &[9; PROOF_BYTES]].concat();
    stream.write_all(&answer).expect("sent");
    record.extend(first(&mut stream, u64::MAX));
    println!("recorded {}", record.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    let mut port = String::new();
    std::io::stdin().read_line(&mut port).expect("a port");
    let mut stream = TcpStream::connect(("127.0.0.1", port.trim().parse::<u16>().expect("a port"))).expect("process 0");
    stream.write_all(&[&record[..], &[0; 4096]].concat()).expect("sent");
    println!("answered {}", first(&mut stream, u64::MAX).len());
}

/// Another user of the machine takes the port of process 0 and records everything: it has no secret, and cannot join a
/// later run with the same token.
#[needs::root]
#[test]
fn another_user_at_the_port_of_process_0_gets_nothing_that_joins_a_run() {
    match std::env::var(SQUATTER) {
        Ok(_) => squat(),
        Err(_) => meet_a_squatter(),
    }
}

fn meet_a_squatter() {
    // A copy that the other user may execute.
    let program = std::env::temp_dir().join(format!("pleach-squatter-{}", std::process::id()));
    std::fs::copy(std::env::current_exe().expect("this program"), &program).expect("a copy");
    let mut child = Command::new(&program)
        .args(["--exact", "tests::attackers::another_user_at_the_port_of_process_0_gets_nothing_that_joins_a_run"])
        .arg("--nocapture")
        .env(SQUATTER, "1")
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process of another user");
    let mut lines = BufReader::new(child.stdout.take().expect("an output")).lines().map_while(Result::ok);
    let mut line = |key: &str| {
        let found = lines.find_map(|line| line.split_once(key).map(|(_, rest)| rest.to_owned()));
        found.unwrap_or_else(|| panic!("no line with {key}"))
    };
    let taken = rig::address(line("squats at ").parse().expect("a port"));
    let listening = Listening::bind(&taken).map(drop).expect_err("taken").to_string();
    assert!(listening.contains("with a port that no other program has, maybe of another user"), "{listening}");
    let error = meet(Some(&taken), &token(), introduction(1, 2), QUICK).map(drop).expect_err("no proof").to_string();
    assert!(error.contains("has another token") && error.contains("The token can stay"), "{error}");
    let record = line("recorded ");
    assert_eq!(record.len(), 2 * GREETING_BYTES, "a greeting, and nothing after the wrong proof");
    assert!(!record.contains(&"5a".repeat(8)), "the token");
    let mut meeting = Meeting::of(2);
    meeting.times.rendezvous = LONG;
    writeln!(child.stdin.take().expect("an input"), "{}", meeting.address().port).expect("sent");
    let met = std::thread::spawn(move || meeting.run());
    assert_eq!(line("answered "), CHALLENGE_BYTES.to_string(), "a challenge without an answer in the record");
    let controls: Vec<Control> = met.join().expect("no panic").into_iter().map(|met| met.expect("met")).collect();
    assert!(child.wait().expect("an end").success());
    std::fs::remove_file(&program).expect("removed");
    rig::finish(controls);
}
