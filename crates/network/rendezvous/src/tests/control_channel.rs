//! The control channel: failures, signals, silence, messages and ends.

use crate::tests::rig;

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::tests::rig::{LONG, Meeting, introduction, token};
use rendezvous::{Control, ControlError, FailureReport, Listening, MAX_BYTES, Message, ProcessFailure, Times};

/// Waits for the failure that each process hears of.
fn failures(controls: &[Control]) -> Vec<String> {
    let heard = |control: &Control| {
        let (sender, receiver) = channel();
        control.on_failure(move |failure: &ProcessFailure| {
            let _ = sender.send(failure.to_string());
        });
        receiver.recv_timeout(LONG).expect("a failure")
    };
    controls.iter().map(heard).collect()
}

#[test]
fn a_failure_is_heard_by_all() {
    for reporter in [0, 2] {
        let controls = Meeting::of(3).met();
        let report = FailureReport {
            rank: Some(5),
            step: Some(7),
            instruction: Some("reduce".into()),
            cause: "no".into(),
            ..FailureReport::default()
        };
        controls[reporter].report(report);
        let expected = format!("process {reporter} (host h0): rank 5 failed in step 7 at \"reduce\": no");
        assert_eq!(failures(&controls), vec![expected; 3]);
        let later = FailureReport { cause: "later".into(), ..FailureReport::default() };
        controls[1].report(later);
        assert_eq!(controls[1].failure().expect("a failure").process, reporter, "the first failure counts");
        let ended = controls.into_iter().next_back().expect("a process").finish(LONG);
        assert!(matches!(ended, Err(ControlError::Failed(_))));
    }
}

#[test]
fn a_process_that_ends_without_a_goodbye_is_named_at_once() {
    for victim in [0, 1] {
        let mut controls = Meeting::of(3).met();
        let began = Instant::now();
        // As the system closes the socket of a process that was killed.
        drop(controls.remove(victim));
        let expected =
            format!("process {victim} (host h{victim}): its connection was closed: it was killed or has crashed");
        assert_eq!(failures(&controls), [expected.clone(), expected]);
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }
}

#[test]
fn a_silent_process_is_named_after_the_heartbeat() {
    let times = Times { rendezvous: LONG, heartbeat: Duration::from_millis(1500) };
    let listening = Listening::bind(&rig::address(0)).expect("a free port");
    let address = listening.local_address();
    let first = std::thread::spawn(move || listening.meet(&token(), introduction(0, 3), times));
    let second = std::thread::spawn(move || {
        rendezvous::meet(Some(&rig::address(address.port())), &token(), introduction(1, 3), times)
    });
    // It introduces itself and then neither sends nor ends, as a process that was stopped.
    let mut silent = rig::introduced(&rig::address(address.port()), introduction(2, 3));
    let controls = [first, second].map(|thread| thread.join().expect("no panic").expect("met"));
    let began = Instant::now();
    for failure in failures(&controls) {
        assert!(failure.starts_with("process 2 (host h0): it has been silent for 1.5s: "), "{failure}");
    }
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let heard = silent.receive(MAX_BYTES, None).expect("the directory");
    assert!(matches!(heard, Message::Directory(_)), "{heard:?}");
}

/// The failure of one process reaches all; those that do not answer are known, and those that do or have ended are not.
#[test]
fn processes_that_do_not_answer_a_failure_are_known_to_process_0() {
    let times = Times { rendezvous: LONG, heartbeat: LONG };
    let listening = Listening::bind(&rig::address(0)).expect("a free port");
    let address = listening.local_address();
    let first = std::thread::spawn(move || listening.meet(&token(), introduction(0, 5), times));
    let others = [1, 2, 3].map(|process| {
        std::thread::spawn(move || {
            rendezvous::meet(Some(&rig::address(address.port())), &token(), introduction(process, 5), times)
        })
    });
    let mut silent = rig::introduced(&rig::address(address.port()), introduction(4, 5));
    let first = first.join().expect("no panic").expect("met");
    let [second, third, fourth] = others.map(|thread| thread.join().expect("no panic").expect("met"));
    assert!(first.unanswered(LONG).is_empty(), "nothing has failed, so nobody is asked");
    third.report(FailureReport { rank: Some(4), cause: "late".into(), ..FailureReport::default() });
    drop(third);
    for control in [&first, &second] {
        failures(std::slice::from_ref(control));
    }
    let named: Vec<String> =
        first.unanswered(Duration::from_secs(1)).into_iter().map(rendezvous::ProcessEntry::named).collect();
    assert_eq!(named, ["process 4 (host h0)"]);
    let awaited: Vec<String> =
        second.unanswered(Duration::ZERO).into_iter().map(rendezvous::ProcessEntry::named).collect();
    assert_eq!(awaited, ["process 0 (host h0)"], "others wait for process 0");
    // It wakes up and answers.
    silent.send(&Message::Heartbeat).expect("sent");
    assert!(first.unanswered(LONG).is_empty());
    drop(first);
    assert!(second.unanswered(LONG).is_empty(), "process 0 has ended");
    drop(fourth);
}

#[test]
fn a_signal_at_any_process_reaches_all() {
    let controls = Meeting::of(3).met();
    controls[2].stop(15);
    for control in &controls {
        let until = Instant::now() + LONG;
        while control.stop_signal().is_none() && Instant::now() < until {
            std::thread::yield_now();
        }
        let stop_signal = control.stop_signal().expect("a wish");
        assert_eq!((stop_signal.process, stop_signal.signal), (2, 15));
    }
    rig::finish(controls);
}

#[test]
fn bytes_are_gathered_broadcast_and_sent_in_order() {
    let controls = Meeting::of(3).met();
    std::thread::scope(|scope| {
        for control in &controls {
            scope.spawn(move || {
                let own = vec![control.process() as u8; 3];
                let all = control.gather("hosts", own, LONG).expect("gathered");
                assert_eq!(all.is_some(), control.process() == 0);
                if let Some(all) = all {
                    assert_eq!(all, [[0; 3], [1; 3], [2; 3]]);
                }
                // Larger than a socket's buffers.
                let text = if control.process() == 0 { vec![7; 5 << 20] } else { vec![] };
                assert_eq!(control.broadcast("text", text, LONG).expect("text").len(), 5 << 20);
                control.barrier("start", LONG).expect("all are there");
                for number in 0..3u8 {
                    control.send_to_first("pieces", vec![control.process() as u8, number]).expect("sent");
                }
            });
        }
    });
    let mut next = [0; 3];
    for _ in 0..9 {
        let (process, bytes) = controls[0].receive("pieces", LONG).expect("no failure").expect("pieces");
        assert_eq!(bytes, [process as u8, next[process]]);
        next[process] += 1;
    }
    assert_eq!(controls[0].receive("pieces", Duration::ZERO).expect("no failure"), None);
    rig::finish(controls);
}

#[test]
fn a_message_that_is_too_large_or_never_comes_is_an_error() {
    let controls = Meeting::of(2).met();
    let error = controls[0].broadcast("text", vec![0; MAX_BYTES], LONG).expect_err("too large").to_string();
    assert!(error.starts_with("text: a message of 67108864 bytes must have at most "), "{error}");
    let error = controls[0].gather("pieces", vec![], Duration::from_millis(10)).expect_err("nobody").to_string();
    assert_eq!(error, "pieces: process 1 (host h1) did not answer within 10ms");
    rig::finish(controls);
}

#[test]
fn a_process_that_has_ended_is_not_waited_for() {
    let mut controls = Meeting::of(2).met();
    let last = controls.pop().expect("process 1");
    last.finish(LONG).expect("an end without a failure");
    let error = controls[0].gather("pieces", vec![], LONG).expect_err("ended").to_string();
    assert_eq!(error, "pieces: process 1 (host h1) has ended its part of the run");
    rig::finish(controls);
}

#[test]
fn process_0_names_those_that_do_not_end() {
    let mut controls = Meeting::of(2).met();
    let first = controls.remove(0);
    let error = first.finish(Duration::from_millis(50)).expect_err("process 1 is there").to_string();
    assert_eq!(error, "the end of the run: process 1 (host h1) did not answer within 50ms");
}

#[test]
fn thirty_two_processes_meet_and_end() {
    let controls = Meeting::of(32).met();
    assert!(controls.iter().all(|control| control.directory().processes.len() == 32));
    rig::finish(controls);
}

#[test]
fn process_0_sends_to_one_process_alone() {
    let controls = Meeting::of(3).met();
    controls[0].send_to(2, "piece", vec![7]).expect("sent");
    controls[0].broadcast("all", vec![8], LONG).expect("sent");
    assert_eq!(controls[2].receive("piece", LONG).expect("no failure"), Some((0, vec![7])));
    // Messages of one sender keep their order: process 1 has all that was sent before this one.
    assert_eq!(controls[1].broadcast("all", vec![], LONG).expect("received"), [8]);
    assert_eq!(controls[1].receive("piece", Duration::ZERO).expect("no failure"), None);
}
