//! One byte that changes on its way: a failure that names the process it came from, and never a wrong sum.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::cluster::{Folder, PORT, Plan};
use super::namespaces::Network;
use super::relay::{self, ByteRange, Way, Wire};

/// More than a run takes that ends by a failure which is noticed at once: shorter than its heartbeat and its timeout.
const LIMIT: Duration = Duration::from_secs(15);
const KEYS: [&str; 4] =
    ["train.steps=150", "run.rendezvous_seconds=5", "run.heartbeat_seconds=60", "run.timeout_seconds=60"];
/// The reason of process 0.
const UNREADABLE: &str =
    "a process at 10.77.0.3 cannot be understood: it sent frame 0 with a seal that is not that of its";
/// The reason of whoever reads a changed byte.
const CHANGED: &str = "with a seal that is not that of its bytes: they were changed on their way";
/// Bytes of the proofs of both ends of a connection, and of those with the first frame after them.
const HANDSHAKE: u64 = 72;
const PREAMBLE: u64 = 144;
/// Bytes of the head of a record of the control channel.
const RECORD: u64 = 44;

/// A byte that is changed.
#[derive(Clone, Copy, Debug)]
struct Flip {
    wire: Wire,
    way: Way,
    at: u64,
}

/// Two processes on two hosts with a relay between them, which changes one byte; their outputs.
fn outputs(network: &Network, folder: &Folder, run: &str, flip: Flip) -> [String; 2] {
    let is_done = Arc::new(AtomicBool::new(false));
    let done = Arc::clone(&is_done);
    let change = move |ByteRange { wire, way, .. }: ByteRange, offset, bytes: &mut [u8]| {
        let at = flip.at.checked_sub(offset).and_then(|at| usize::try_from(at).ok());
        if let Some(byte) = at.filter(|_| (wire, way) == (flip.wire, flip.way)).and_then(|at| bytes.get_mut(at)) {
            *byte ^= 0x10;
            done.store(true, Ordering::Relaxed);
        }
    };
    let relayed = match flip.wire {
        Wire::Meeting => relay::start_blind(network, change),
        Wire::Control | Wire::Data => relay::start(network, change),
    };
    let rendezvous = |process| if process == 0 { network.socket(0, PORT) } else { relayed };
    let key = folder.key(run);
    let keys = [&KEYS[..], &[&key]].concat();
    let ended = Plan { network, processes_per_host: 1, keys, rendezvous: &rendezvous }.start().end_within(LIMIT);
    assert!(is_done.load(Ordering::Relaxed), "no byte was changed: {ended:#?}");
    let texts = ended.into_iter().map(|ended| {
        assert_eq!(ended.code, Some(1), "{flip:?}, process {}: {}", ended.number, ended.text);
        ended.text
    });
    texts.collect::<Vec<_>>().try_into().expect("two processes")
}

/// Bytes that are changed: five, or as many as `PLEACH_CASES` says.
fn flips() -> usize {
    needs::cases!(5)
}

/// The number of the process whose bytes are changed.
fn sender(way: Way) -> usize {
    match way {
        Way::There => 1,
        Way::Back => 0,
    }
}

#[needs::namespaces]
#[test]
fn a_changed_byte_between_ranks_is_named_and_reaches_no_sum() {
    let network = Network::of(2);
    let folder = Folder::new("changed");
    folder.train_on_threads("threads", &KEYS);
    let expected = folder.losses("threads");
    // The middle of a header and of payloads, early and later in the run; then anywhere.
    let drawn = (0..).map(|number: u64| PREAMBLE + (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % 3_000_000);
    let places = [PREAMBLE + 40, 5_000, 200_001, 1_234_567, 3_000_003].into_iter().chain(drawn);
    for (index, at) in places.take(flips()).enumerate() {
        let way = if index % 2 == 0 { Way::There } else { Way::Back };
        let run = format!("run-{index}");
        let texts = outputs(&network, &folder, &run, Flip { wire: Wire::Data, way, at });
        for text in &texts {
            let names = text.contains(&format!("process {} (", sender(way)));
            assert!(names && text.contains(CHANGED), "{text}");
        }
        let losses = folder.losses(&run);
        assert!(losses.len() < expected.len(), "the run ends early");
        assert_eq!(losses, expected[..losses.len()], "no loss is wrong");
    }
    println!("{} changed bytes of messages, each named with the process that sent it; no loss was wrong", flips());
}

#[needs::namespaces]
#[test]
fn a_changed_byte_of_a_preamble_lets_no_rank_train() {
    let network = Network::of(2);
    let folder = Folder::new("preamble");
    // The magic, the version, the nonce, a proof; the seal and the fields of the first frame.
    for (index, at) in [0, 4, 20, HANDSHAKE - 10, HANDSHAKE + 10, HANDSHAKE + 50].into_iter().enumerate() {
        for way in [Way::There, Way::Back] {
            let run = format!("run-{index}-{way:?}");
            let texts = outputs(&network, &folder, &run, Flip { wire: Wire::Data, way, at });
            // Process 1 connects. It reads the answer, or a refusal.
            assert!(texts[1].contains("process 0 (ranks 0, 1, 4, 5) on host h0 "), "{way:?} {at}: {texts:#?}");
            assert!(folder.losses(&run).is_empty(), "{way:?} {at}: {texts:#?}");
        }
    }
}

#[needs::namespaces]
#[test]
fn a_changed_byte_of_the_control_channel_is_named() {
    let network = Network::of(2);
    let folder = Folder::new("control");
    // In the first record: its number, the seal of its content, its length and its seal; its content.
    for (index, at) in [0, 9, 20, 26, 40, RECORD + 2].into_iter().enumerate() {
        let way = if index % 2 == 0 { Way::There } else { Way::Back };
        let run = format!("run-{index}");
        let texts = outputs(&network, &folder, &run, Flip { wire: Wire::Control, way, at });
        for text in &texts {
            let names = text.contains(&format!("process {} (", sender(way)));
            assert!(names && text.contains("the control channel cannot be understood"), "{text}");
        }
    }
}

#[needs::namespaces]
#[test]
fn a_changed_byte_of_the_meeting_is_named() {
    let network = Network::of(2);
    let folder = Folder::new("meeting");
    let other_token = "connections from 10.77.0.3 had another token";
    let wrong_proof = "process 1 got a wrong proof from 10.77.0.3:";
    let cases = [
        // The version, the nonce and the proof of process 1, and its introduction.
        (
            Way::There,
            4,
            "connections from 10.77.0.3 had version 20 of the messages",
            "process 1 got no proof of the token",
        ),
        (Way::There, 20, other_token, wrong_proof),
        (Way::There, HANDSHAKE - 10, other_token, "process 1 got no "),
        // Process 0 prints it for both.
        (Way::There, HANDSHAKE + RECORD + 5, UNREADABLE, ""),
        // The nonce and the proof of process 0, and the directory. Then process 0 has all that it needs, and hears of
        // the end of process 1.
        (Way::Back, 20, other_token, wrong_proof),
        (Way::Back, HANDSHAKE - 10, other_token, wrong_proof),
        (Way::Back, HANDSHAKE + RECORD + 5, "process 1 (host h1): its connection was closed", CHANGED),
    ];
    for (way, at, of_first, of_second) in cases {
        let [first, second] = outputs(&network, &folder, "run", Flip { wire: Wire::Meeting, way, at });
        assert!(first.contains(of_first), "{way:?} {at}: {first}");
        assert!(second.contains(of_second) && of_second.is_empty() == second.is_empty(), "{way:?} {at}: {second}");
    }
}

/// Frames between ranks that a relay without the token repeats or puts in another order, in the middle of the gradients
/// of a run: a failure that names the process, and no wrong weights.
#[needs::namespaces]
#[test]
fn frames_that_come_twice_or_in_another_order_reach_no_sum() {
    let network = Network::of(2);
    let folder = Folder::new("order");
    folder.train_on_threads("threads", &KEYS);
    let expected = folder.losses("threads");
    for (run, is_repeated) in [("repeated", true), ("swapped", false)] {
        // The relay sees stretches of bytes and not frames. One stretch has the bytes of an earlier one in its place:
        // what follows is as old, or out of order.
        let kept: Mutex<Vec<u8>> = Mutex::default();
        let is_done = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&is_done);
        let relayed = relay::start(&network, move |ByteRange { wire, way, .. }: ByteRange, offset, bytes| {
            if (wire, way) != (Wire::Data, Way::There) || offset < 200_000 || done.load(Ordering::Relaxed) {
                return;
            }
            let mut kept = kept.lock().expect("no panic");
            if kept.is_empty() {
                kept.extend_from_slice(bytes);
                if !is_repeated {
                    // Both halves change their places.
                    let half = bytes.len() / 2;
                    bytes.rotate_left(half);
                    done.store(true, Ordering::Relaxed);
                }
            } else if bytes.len() == kept.len() {
                bytes.copy_from_slice(&kept);
                done.store(true, Ordering::Relaxed);
            }
        });
        let rendezvous = |process| if process == 0 { network.socket(0, PORT) } else { relayed };
        let key = folder.key(run);
        let keys = [&KEYS[..], &[&key]].concat();
        let plan = Plan { network: &network, processes_per_host: 1, keys, rendezvous: &rendezvous };
        for ended in plan.start().end_within(LIMIT) {
            assert_eq!(ended.code, Some(1), "{run}, process {}: {}", ended.number, ended.text);
            let is_named = ended.text.contains(CHANGED) || ended.text.contains("lost, repeated or reordered");
            assert!(is_named && ended.text.contains("process 1 ("), "{run}: {}", ended.text);
        }
        assert!(is_done.load(Ordering::Relaxed), "{run}: nothing was changed");
        let losses = folder.losses(run);
        assert!(losses.len() < expected.len(), "the run ends early");
        assert_eq!(losses, expected[..losses.len()], "no loss is wrong");
    }
}
