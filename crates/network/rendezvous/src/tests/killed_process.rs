//! A process of its own that is killed or stopped by a signal, as the others see it.

use crate::tests::rig;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::tests::rig::{LONG, introduction, token};
use rendezvous::{Control, Listening, Times, meet};

/// Names the port of process 0 to the child.
const PORT: &str = "RENDEZVOUS_TEST_PORT";

/// The child: process 1, which stays until it is killed.
fn meet_and_stay(port: &str) {
    let port = port.parse().expect("a port");
    let times = Times { rendezvous: LONG, heartbeat: Duration::from_secs(2) };
    let control = meet(Some(&rig::address(port)), &token(), introduction(1, 2), times).expect("met");
    println!("met as {}", control.process());
    // Its input ends with the parent.
    let _ = std::io::stdin().read(&mut [0]);
}

/// Process 0 here, and process 1 as a child that has met it.
fn pair(times: Times) -> (Control, Child) {
    let listening = Listening::bind(&rig::address(0)).expect("a free port");
    let port = listening.local_address().port();
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "tests::killed_process::a_killed_process_is_named_long_before_its_heartbeat", "--nocapture"])
        .env(PORT, port.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let control = listening.meet(&token(), introduction(0, 2), times).expect("met");
    let lines = BufReader::new(child.stdout.take().expect("output")).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.ends_with("met as 1")));
    (control, child)
}

fn send(signal: &str, child: &Child) {
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().expect("kill").success());
}

fn failure(control: &Control) -> String {
    let (sender, receiver) = channel();
    control.on_failure(move |failure| drop(sender.send(failure.to_string())));
    receiver.recv_timeout(LONG).expect("a failure")
}

/// In the child this test is process 1 of all tests.
#[test]
fn a_killed_process_is_named_long_before_its_heartbeat() {
    match std::env::var(PORT) {
        Ok(port) => meet_and_stay(&port),
        Err(_) => kill_and_hear(),
    }
}

fn kill_and_hear() {
    let (control, mut child) = pair(Times { rendezvous: LONG, heartbeat: LONG });
    let began = Instant::now();
    send("-KILL", &child);
    let expected = "process 1 (host h1): its connection was closed: it was killed or has crashed";
    assert_eq!(failure(&control), expected);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    child.wait().expect("an end");
}

#[test]
fn a_stopped_process_is_silent() {
    let (control, mut child) = pair(Times { rendezvous: LONG, heartbeat: Duration::from_secs(2) });
    send("-STOP", &child);
    let failure = failure(&control);
    assert!(failure.starts_with("process 1 (host h1): it has been silent for 2s: "), "{failure}");
    send("-KILL", &child);
    child.wait().expect("an end");
}
