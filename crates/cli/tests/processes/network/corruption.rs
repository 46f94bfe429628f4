//! One byte that changes on its way: a failure that names the process it came from, and never a wrong sum.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::cluster::{Folder, PORT, Plan};
use super::namespaces::Network;
use super::relay::{self, Stretch, Way, Wire};

/// More than a run takes that ends by a failure which is noticed at once: shorter than its heartbeat and its timeout.
const LIMIT: Duration = Duration::from_secs(15);
const KEYS: [&str; 4] =
    ["train.steps=150", "run.rendezvous_seconds=5", "run.heartbeat_seconds=60", "run.timeout_seconds=60"];
/// The reason of process 0.
const UNREADABLE: &str =
    "a process at 10.77.0.3 cannot be understood: the checksum of a message is not that of its bytes";
/// Bytes of a header of the control channel.
const CONTROL_HEADER: u64 = 24;
/// Bytes of a connection between ranks before its first message: a token, and who speaks to whom.
const PREAMBLE: u64 = 64;

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
    let relayed = relay::start(network, move |Stretch { wire, way, .. }: Stretch, offset, bytes| {
        let at = flip.at.checked_sub(offset).and_then(|at| usize::try_from(at).ok());
        if let Some(byte) = at.filter(|_| (wire, way) == (flip.wire, flip.way)).and_then(|at| bytes.get_mut(at)) {
            *byte ^= 0x10;
            done.store(true, Ordering::Relaxed);
        }
    });
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

/// Bytes that are changed: five, or as many as `PLEACH_FLIPS` says.
fn flips() -> usize {
    std::env::var("PLEACH_FLIPS").ok().and_then(|count| count.parse().ok()).unwrap_or(5)
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
            assert!(names && (text.contains("checksum") || text.contains("begins with")), "{text}");
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
    // The token, the magic, the verdict, both processes, and the fingerprint.
    for (index, at) in [0, 35, 42, 44, 48, 60].into_iter().enumerate() {
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
    // In the first headers: the magic, the kind, the length, and both checksums.
    for (index, at) in [0, 6, 9, CONTROL_HEADER + 10, 13, CONTROL_HEADER + 20].into_iter().enumerate() {
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
    // The token, a header and a payload of the introduction; a header and a payload of the directory.
    for (way, at) in [(Way::There, 5), (Way::There, 40), (Way::There, 100), (Way::Back, 9), (Way::Back, 60)] {
        let [first, second] = outputs(&network, &folder, "run", Flip { wire: Wire::Meeting, way, at });
        let (of_first, of_second) = match (way, at) {
            (Way::There, 0..32) => {
                ("connections from 10.77.0.3 had another token", "give all processes the same token")
            }
            // Process 0 prints it for both.
            (Way::There, _) => (UNREADABLE, ""),
            // Process 0 has all that it needs, and hears of the end of process 1.
            (Way::Back, _) => {
                ("process 1 (host h1): its connection was closed", "the checksum of a message is not that")
            }
        };
        assert!(first.contains(of_first), "{way:?} {at}: {first}");
        assert!(second.contains(of_second) && of_second.is_empty() == second.is_empty(), "{way:?} {at}: {second}");
    }
}
