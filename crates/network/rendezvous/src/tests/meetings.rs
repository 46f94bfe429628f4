//! Processes that meet, and those that do not: threads with sockets of their own on the loopback interface.

use crate::tests::rig;

use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::tests::rig::{Meeting, QUICK, introduction, token};
use launcher::Address;
use rendezvous::{Introduction, Listening, PeerLink, PeerService, RendezvousError, TextHash, Times, Token, meet};

#[test]
fn processes_that_agree_have_the_same_directory() {
    let controls = Meeting::of(4).met();
    for (process, control) in controls.iter().enumerate() {
        assert_eq!(control.process(), process);
        assert_eq!(control.directory(), controls[0].directory());
    }
    let directory = controls[0].directory();
    let shown: Vec<String> =
        directory.processes.iter().map(|entry| format!("{} {:?}", entry.named(), entry.ranks)).collect();
    let expected = [
        "process 0 (host h0) [0, 1]",
        "process 1 (host h1) [2, 3]",
        "process 2 (host h0) [4, 5]",
        "process 3 (host h1) [6, 7]",
    ];
    assert_eq!(shown, expected);
    assert_eq!(directory.process_of(5).map(|entry| entry.process), Some(2));
    rig::finish(controls);
}

/// A relay cannot join processes of two runs of one user: their further connections have other tokens.
#[test]
fn all_processes_of_a_run_have_its_token_and_no_other_run_has() {
    let runs = [Meeting::of(2).met(), Meeting::of(2).met()];
    let [one, other] = runs.each_ref().map(|controls| {
        let tokens: Vec<Token> = controls.iter().map(|control| token().of_run(control.directory())).collect();
        assert_eq!(tokens[0].to_hex(), tokens[1].to_hex());
        tokens[0].clone()
    });
    assert_ne!(one.to_hex(), token().to_hex());
    let answer = |link: &mut PeerLink| link.receive().map(drop);
    let service = PeerService::start(Ipv4Addr::LOCALHOST.into(), one.clone(), answer).expect("a listener");
    assert!(PeerLink::connect(service.address(), &one, rig::LONG).is_ok());
    assert!(PeerLink::connect(service.address(), &other, rig::LONG).is_err());
    runs.into_iter().for_each(rig::finish);
}

#[test]
fn one_process_meets_nobody() {
    let control = meet(None, &token(), introduction(0, 1), QUICK).expect("alone");
    assert_eq!(control.directory().processes.len(), 1);
    control.barrier("start", Duration::ZERO).expect("nobody is awaited");
    control.finish(Duration::ZERO).expect("an end");
}

/// The lines that every process reports where the introduction of process `which` is changed.
fn refused(which: usize, change: impl Fn(&mut Introduction)) -> String {
    let mut meeting = Meeting::of(4);
    change(&mut meeting.introductions[which]);
    let began = Instant::now();
    let errors: Vec<String> = meeting.run().into_iter().map(|met| met.expect_err("refused").to_string()).collect();
    assert!(began.elapsed() < Duration::from_secs(10), "{errors:?}");
    for error in &errors {
        assert_eq!(error, &errors[0], "all processes report the same");
    }
    errors[0].clone()
}

#[test]
fn differences_are_named_on_every_process() {
    assert_eq!(
        refused(3, |introduction| introduction.identity.binary = 0xabc),
        "process 3 (host h1) runs another binary: pleach 0.1.0 with hash 0000000000000abc, and process 0 has 0.1.0 with \
         0000000000000001; start all with the same file"
    );
    assert_eq!(
        refused(1, |introduction| introduction.identity.run_file = 9),
        "process 1 (host h1) has another run file: hash 0000000000000009 with all options, and process 0 has \
         0000000000000002; start all with the same run file and --set options"
    );
    assert_eq!(
        refused(1, |introduction| introduction.identity.program = 9),
        "process 1 (host h1) compiled another program: fingerprint 0000000000000009, and process 0 has 0000000000000003; \
         start all with the same binary and run file"
    );
    assert_eq!(
        refused(2, |introduction| introduction.identity.text = TextHash::Read(9)),
        "process 2 (host h0) reads another text: hash 0000000000000009, and process 0 has 0000000000000004; give all hosts \
         the same files of [data]"
    );
    assert_eq!(
        refused(1, |introduction| introduction.identity.inputs = BTreeMap::from([("weights file".into(), 9)])),
        "process 1 (host h1) reads another weights file: hash 0000000000000009, and process 0 has 0000000000000005; give \
         all hosts the same file"
    );
    assert_eq!(
        refused(2, |introduction| introduction.processes = 8),
        "process 2 (host h0) expects 8 processes, and process 0 expects 4; start all with the same number"
    );
    assert_eq!(
        refused(2, |introduction| introduction.entry.ranks = vec![2, 3]),
        "rank 2 is in process 1 (host h1) and in process 2 (host h0); give all processes the same hosts\n\
         rank 3 is in process 1 (host h1) and in process 2 (host h0); give all processes the same hosts\n\
         rank 4 is in no process; give all processes the same hosts"
    );
    let address = "127.0.0.1";
    let twice = refused(3, |introduction| introduction.entry.process = 2);
    assert!(
        twice.starts_with("process 2 has started twice, both on host h0; start each number once\n")
            || twice.starts_with("process 2 has started twice, on host h1 and on host h0; start each number once\n")
            || twice.starts_with("process 2 has started twice, on host h0 and on host h1; start each number once\n"),
        "{twice}"
    );
    assert!(twice.contains(&format!("\nprocess 3 of 4 did not arrive at {address}:")), "{twice}");
}

#[test]
fn a_process_without_text_takes_that_of_process_0() {
    let mut meeting = Meeting::of(2);
    meeting.introductions[1].identity.text = TextHash::FromProcess0;
    let controls: Vec<_> = meeting.run().into_iter().map(|met| met.expect("met")).collect();
    let texts: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let take =
            |control| scope.spawn(move || rendezvous::Control::broadcast(control, "text", b"abc".to_vec(), rig::LONG));
        let threads: Vec<_> = controls.iter().map(take).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic").expect("text")).collect()
    });
    assert_eq!(texts, [b"abc", b"abc"]);
    rig::finish(controls);
}

#[test]
fn missing_processes_are_named_on_every_process_that_is_there() {
    let mut meeting = Meeting::of(4);
    meeting.introductions.retain(|introduction| ![1, 3].contains(&introduction.entry.process));
    let errors: Vec<String> = meeting.run().into_iter().map(|met| met.expect_err("refused").to_string()).collect();
    assert_eq!(errors.len(), 2);
    for error in errors {
        let (before, after) = error.split_once(" at 127.0.0.1:").expect("an address");
        assert_eq!(before, "processes 1, 3 of 4 did not arrive");
        assert!(after.ends_with(" within 1s; start all processes, or raise run.rendezvous_seconds"), "{after}");
    }
}

#[test]
fn a_process_0_that_is_not_there_is_named() {
    let nowhere = rig::free_address();
    let error = meet(Some(&nowhere), &token(), introduction(1, 2), QUICK).expect_err("nobody").to_string();
    assert!(error.starts_with(&format!("process 1 found no process 0 at {nowhere} within 1s: ")), "{error}");
}

#[test]
fn an_address_that_is_taken_or_elsewhere_is_named() {
    let listening = Listening::bind(&rig::address(0)).expect("a free port");
    let taken = rig::address(listening.local_address().port());
    let error = Listening::bind(&taken).expect_err("taken").to_string();
    assert!(error.starts_with(&format!("process 0 cannot listen at {taken}: ")), "{error}");
    let elsewhere = Address { host: "192.0.2.1".into(), port: 29400 };
    assert!(matches!(Listening::bind(&elsewhere), Err(RendezvousError::Listen { .. })));
}

#[test]
fn another_token_is_refused_before_anything_is_said() {
    let listening = Listening::bind(&rig::address(0)).expect("a free port");
    let address = rig::address(listening.local_address().port());
    let first = std::thread::spawn(move || listening.meet(&token(), introduction(0, 2), QUICK));
    let other = Token::random().expect("random");
    let second = meet(Some(&address), &other, introduction(1, 2), QUICK).expect_err("refused").to_string();
    let expected = format!("process 1 got a wrong proof from {address}: the process there has another token; give all");
    assert!(second.starts_with(&expected), "{second}");
    let first = first.join().expect("no panic").expect_err("nobody came").to_string();
    let expected = "; connections from 127.0.0.1 had another token: give all the same PLEACH_TOKEN";
    assert!(first.starts_with("process 1 of 2 did not arrive") && first.ends_with(expected), "{first}");
}

#[test]
fn a_wrong_proof_is_refused_and_foreign_bytes_are_not_answered() {
    let listening = Listening::bind(&rig::address(0)).expect("a free port");
    let address = listening.local_address();
    let first = std::thread::spawn(move || listening.meet(&token(), introduction(0, 2), QUICK));
    let answer = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(address).expect("connected");
        stream.write_all(bytes).expect("sent");
        let mut answer = vec![];
        // It may end by a reset.
        let _ = stream.read_to_end(&mut answer);
        answer
    };
    assert_eq!(answer(&[0x5a; 4096]).len(), 0);
    let greeting = session::unproven_greeting(session::Service::Meeting);
    assert_eq!(answer(&[&greeting[..], &[1; session::PROOF_BYTES]].concat()).len(), session::CHALLENGE_BYTES);
    let first = first.join().expect("no panic").expect_err("nobody came").to_string();
    let expected = "; connections from 127.0.0.1 had another token: give all the same PLEACH_TOKEN; connections from \
                    127.0.0.1 showed no proof of the token, and are not of pleach";
    assert!(first.ends_with(expected), "{first}");
}

#[test]
fn connections_that_say_nothing_or_nonsense_do_not_keep_processes_out() {
    let mut meeting = Meeting::of(2);
    // Shorter than the time after which a silent connection is dropped: processes do not wait for that.
    meeting.times = Times { rendezvous: Duration::from_secs(2), ..QUICK };
    let address = meeting.address();
    // More than are served at one time.
    let silent: Vec<TcpStream> =
        (0..120).map(|_| TcpStream::connect((address.host.as_str(), address.port)).expect("connected")).collect();
    for mut stream in silent.iter().step_by(2) {
        stream.write_all(&[0x55; 4096]).expect("sent");
    }
    let controls = meeting.run().into_iter().map(|met| met.expect("met"));
    rig::finish(controls.collect());
    drop(silent);
}

#[test]
fn processes_meet_while_others_connect_all_the_time() {
    let mut meeting = Meeting::of(8);
    meeting.times = Times { rendezvous: rig::LONG, ..QUICK };
    let address = meeting.address();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut held = VecDeque::new();
            while !is_over.load(Ordering::Relaxed) {
                held.extend(TcpStream::connect((address.host.as_str(), address.port)));
                if held.len() > 400 {
                    held.pop_front();
                }
            }
        });
        let met = meeting.run();
        is_over.store(true, Ordering::Relaxed);
        rig::finish(met.into_iter().map(|met| met.expect("met")).collect());
    });
}

#[test]
fn a_process_that_comes_too_late_is_refused_with_the_reason() {
    let meeting = Meeting::of(2);
    let address = meeting.address();
    let controls = meeting.met();
    let late = meet(Some(&address), &token(), introduction(1, 2), QUICK).expect_err("late").to_string();
    let expected =
        "process 1 (host h1) is too late: the run has started with all of its 2 processes; start each number once";
    assert_eq!(late, expected);
    assert!(controls.iter().all(|control| control.failure().is_none()), "the run is not disturbed");
    rig::finish(controls);
}

/// The reason of process 0 after a connection that sends `bytes`, and its answer.
fn refused_version(bytes: &[u8]) -> (String, Vec<u8>) {
    let listening = Listening::bind(&rig::address(0)).expect("a free port");
    let address = listening.local_address();
    let first = std::thread::spawn(move || listening.meet(&token(), introduction(0, 2), QUICK));
    let mut stream = TcpStream::connect(address).expect("connected");
    stream.write_all(bytes).expect("sent");
    let mut answer = vec![];
    stream.read_to_end(&mut answer).expect("an answer, and an end");
    (first.join().expect("no panic").expect_err("refused").to_string(), answer)
}

#[test]
fn another_version_is_refused_on_both_sides() {
    let mut newer = session::unproven_greeting(session::Service::Meeting);
    newer[4] = 7;
    // Version 2 began with the token, and read the version at 4 and 5 of 24 bytes at least.
    let older = [&[0x5a; 32][..], b"plch\x02\x00\x01\x00", &[7; 300]].concat();
    for (bytes, version) in [(&newer[..], 7), (&older, 2)] {
        let (reason, answer) = refused_version(bytes);
        let expected = format!(
            "; connections from 127.0.0.1 had version {version} of the messages, and this process has version 3: start all \
             processes with the same binary"
        );
        assert!(reason.ends_with(&expected), "{reason}");
        assert!(answer.len() >= 24 && answer.starts_with(b"plch\x03\x00"), "{answer:?}");
    }
}

#[test]
fn a_process_0_of_another_version_is_named() {
    let squatter = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = rig::address(squatter.local_addr().expect("an address").port());
    let connection = std::thread::spawn(move || meet(Some(&address), &token(), introduction(1, 2), QUICK).map(drop));
    let (mut stream, _) = squatter.accept().expect("a process");
    stream.write_all(b"plch\x04\x00").expect("sent");
    let error = connection.join().expect("no panic").expect_err("refused").to_string();
    assert!(error.contains("it has version 4 of the messages, and this process version 3; start all"), "{error}");
}
