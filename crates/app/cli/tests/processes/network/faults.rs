//! A host that is cut off or frozen: the bits of threads where it comes back in time, else a failure that every process
//! names by the shorter of two deadlines.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::cluster::{Cluster, Ended, Folder, LIMIT, PORT, Plan};
use super::namespaces::Network;

/// A run that ends by a fault only.
const LONG: [&str; 3] = ["train.steps=1000000", "run.rendezvous_seconds=60", "run.timeout_seconds=60"];
/// The longer deadline of a run: everything has ended before it where the shorter one acts, however busy the machine
/// is.
const LONGER: Duration = Duration::from_secs(60);

/// The processes of host `host`, of two on each.
fn of_host(host: usize) -> [usize; 2] {
    [2 * host, 2 * host + 1]
}

/// Eight processes on four hosts, after some steps.
fn under_way(network: &Network, keys: Vec<&str>) -> Cluster {
    let rendezvous = |_| network.socket(0, PORT);
    let mut cluster = Plan { network, processes_per_host: 2, keys, rendezvous: &rendezvous }.start();
    cluster.wait_for_step(3);
    cluster
}

/// All processes end within `limit` of `fault` with exit code 1, each with one of the texts that it may have.
fn assert_named(ended: &[Ended], fault: Instant, limit: Duration, texts: impl Fn(usize) -> Vec<String>) {
    for Ended { number, code, text, at } in ended {
        let (took, texts) = (at.duration_since(fault), texts(*number));
        println!("process {number} ended after {took:?}");
        assert_eq!(*code, Some(1), "process {number}: {text}");
        assert!(texts.iter().any(|expected| text.contains(expected)), "process {number} has none of {texts:?}: {text}");
        assert!(took <= limit, "process {number} ended after {took:?}, more than {limit:?}: {text}");
    }
}

/// The start of a message about one of these processes.
fn about(processes: impl IntoIterator<Item = usize>) -> Vec<String> {
    processes.into_iter().map(|process| format!("process {process} (host h{}): ", process / 2)).collect()
}

#[needs::namespaces]
#[test]
fn a_cut_link_ends_all_processes_by_name() {
    // Of a host of the middle, and of that of process 0.
    for cut in [2, 0] {
        let network = Network::of(4);
        let folder = Folder::new("cut");
        let run = folder.key("run");
        let cluster = under_way(&network, [&LONG[..], &["run.heartbeat_seconds=3", &run]].concat());
        let fault = Instant::now();
        network.cut(cut);
        let ended = cluster.end_within(LIMIT);
        // Each side misses the other. Who is not process 0 is in touch with process 0 alone, and hears of others from
        // it.
        let blamed = |process: usize| {
            let is_cut = of_host(cut).contains(&process);
            about((0..8).filter(|other| of_host(cut).contains(other) != is_cut))
        };
        assert_named(&ended, fault, LONGER, blamed);
    }
}

#[needs::namespaces]
#[test]
fn a_host_that_is_frozen_for_less_than_the_heartbeat_changes_no_bit() {
    let network = Network::of(4);
    let folder = Folder::new("thawed");
    let keys = ["train.steps=60", "run.heartbeat_seconds=10", "run.rendezvous_seconds=60"];
    folder.train_on_threads("threads", &keys);
    for (frozen, run) in [(1, "other"), (0, "first")] {
        let cluster = under_way(&network, [&keys[..], &[&folder.key(run)]].concat());
        of_host(frozen).iter().for_each(|process| cluster.process(*process).signal("STOP"));
        sleep(Duration::from_secs(5));
        of_host(frozen).iter().for_each(|process| cluster.process(*process).signal("CONT"));
        cluster.succeed();
        folder.assert_same(run, "threads");
    }
}

/// Freezes a host for ever; when all others have ended, it continues and ends, too. The ends of the others and its own.
fn ends_after_frost(frozen: usize, keys: &[&str]) -> (Instant, Vec<Ended>, Vec<Ended>) {
    let network = Network::of(4);
    let folder = Folder::new("frozen");
    let run = folder.key("run");
    let mut others = under_way(&network, [&LONG[..], keys, &[&run]].concat());
    let (stopped, awake) = others.processes.drain(..).partition(|process| of_host(frozen).contains(&process.number));
    let stopped = Cluster { processes: stopped };
    others.processes = awake;
    let fault = Instant::now();
    stopped.processes.iter().for_each(|process| process.signal("STOP"));
    let others = others.end_within(LIMIT);
    stopped.processes.iter().for_each(|process| process.signal("CONT"));
    (fault, others, stopped.end_within(LIMIT))
}

#[needs::namespaces]
#[test]
fn a_host_that_is_frozen_for_longer_ends_all_processes_by_name() {
    for frozen in [3, 0] {
        let (fault, others, own) = ends_after_frost(frozen, &["run.heartbeat_seconds=3"]);
        assert_named(&others, fault, LONGER, |_| about(of_host(frozen)));
        // Those that continued hear that the others have ended, or of the failure that these have named.
        assert_named(&own, fault, LIMIT, |_| about(0..8));
    }
}

#[needs::namespaces]
#[test]
fn a_rank_that_is_late_is_named_before_its_heartbeat() {
    let keys = ["run.heartbeat_seconds=60", "run.timeout_seconds=10"];
    let (fault, others, own) = ends_after_frost(2, &keys);
    // The first that is late waits for a rank of the host, or for one that waits for it. Process 0 adds who does not
    // answer.
    let late = |_| (0..8).map(|rank| format!(" ms for rank {rank} in ")).collect();
    assert_named(&others, fault, LONGER, late);
    let frozen = "process 4 (host h2), process 5 (host h2) have not answered since then: stopped";
    assert!(
        others[0].text.contains(frozen) || others[0].text.contains("(host h2) has not answered"),
        "{}",
        others[0].text
    );
    assert_named(&own, fault, LIMIT, |process| [late(process), about(0..8)].concat());
}
