//! Runs on four hosts have the bits of threads.

use super::cluster::{Folder, PORT, Plan};
use super::namespaces::Network;

const STEPS: &str = "train.steps=6";

/// A run of eight processes on four hosts has the losses and the weights of eight threads.
fn assert_same_as_threads(network: &Network, folder: &Folder, run: &str, keys: &[&str]) {
    folder.train_on_threads("threads", &[&[STEPS], keys].concat());
    let own = [STEPS, "run.rendezvous_seconds=60", "run.heartbeat_seconds=30", &folder.key(run)];
    let rendezvous = |_| network.socket(0, PORT);
    Plan { network, processes_per_host: 2, keys: [&own, keys].concat(), rendezvous: &rendezvous }.start().succeed();
    folder.assert_same(run, "threads");
}

#[needs::namespaces]
#[test]
fn four_hosts_have_the_bits_of_threads() {
    let network = Network::of(4);
    let folder = Folder::new("bits");
    assert_same_as_threads(&network, &folder, "plain", &[]);
    assert_same_as_threads(&network, &folder, "zero-3", &["parallelism.zero=3", "parallelism.overlap=true"]);
    network.set_rate(200.0);
    assert_same_as_threads(&network, &folder, "slow", &["run.save_every=2"]);
}

#[needs::namespaces]
#[test]
fn lost_packets_change_no_bit() {
    let network = Network::of(4);
    let folder = Folder::new("loss");
    network.set_loss(1, 1.0);
    network.set_loss(2, 1.0);
    assert_same_as_threads(&network, &folder, "loss", &["train.steps=12"]);
    assert!(network.lost(1) + network.lost(2) > 0, "no packet was lost");
}
