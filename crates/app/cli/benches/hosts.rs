//! Steps of a run on four hosts whose links have a known rate, compared with the steps that `pleach simulate` predicts
//! for these links: `cargo bench -p cli --bench hosts`.
//!
//! Hosts are network namespaces, so it needs root, `ip` and `tc`. Eight processes, two on each host, share the cores of
//! this machine; compute times are measured while eight ranks are busy. A rate in Mbit/s may be given: `-- 100`.

#[path = "../tests/processes/network/cluster.rs"]
#[allow(dead_code, reason = "tests use the rest")]
mod cluster;
#[path = "../tests/processes/network/namespaces.rs"]
#[allow(dead_code, reason = "tests use the rest")]
mod namespaces;

use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ::cluster::{Cluster, CollectiveLibrary, Link};
use cluster::{Folder, PORT, Plan, options};
use namespaces::Network;

const HOSTS: usize = 4;
const PROCESSES_PER_HOST: usize = 2;

/// A model of 3 million parameters: two replicas of two stages of two tensor-parallel ranks, one of each on a host.
const RUN: [&str; 16] = [
    "model.num_layers=4",
    "model.hidden=256",
    "model.num_heads=4",
    "model.context=64",
    "model.dropout=0",
    "data.tokenizer=bytes",
    "parallelism.dp=2",
    "parallelism.tp=2",
    "parallelism.pp=2",
    "parallelism.microbatch_size=1",
    "train.global_batch=16",
    "train.steps=100000",
    "run.save_every=0",
    "run.rendezvous_seconds=60",
    "run.heartbeat_seconds=60",
    "run.timeout_seconds=600",
];

/// Rates of the links in Mbit/s, where none is given.
const RATES: [f64; 3] = [50.0, 100.0, 200.0];
/// Bytes of a frame that carry data, of all: Ethernet's 14, IP's 20 and TCP's 32 go with each 1,448.
const PAYLOAD: f64 = 1448.0 / 1514.0;

const WARM_UP: usize = 3;
const TIMED: usize = 20;
/// The longest that a run of all steps takes.
const LIMIT: Duration = Duration::from_secs(900);

fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}

/// The timed steps of a run.
struct Timed {
    /// As process 0 writes them.
    seconds: Vec<f64>,
    /// Bytes on the wire of a step, of the host that sends most.
    sent_bytes: f64,
    /// Packets that a full queue dropped in a step, of that host.
    dropped: f64,
}

/// The timed steps of a run.
fn timed(network: &Network, folder: &Folder, run: &str) -> Timed {
    let key = folder.key(run);
    let rendezvous = |_| network.socket(0, PORT);
    let keys = [&RUN[..], &[&key]].concat();
    let cluster = Plan { network, processes_per_host: PROCESSES_PER_HOST, keys, rendezvous: &rendezvous }.start();
    let began = Instant::now();
    let sent = || (0..HOSTS).map(|host| network.sent(host)).collect::<Vec<_>>();
    let mut before = None;
    let records = loop {
        let text = folder.text(run, "metrics.jsonl");
        let records: Vec<String> = text.lines().take(WARM_UP + TIMED).map(str::to_owned).collect();
        if records.len() >= WARM_UP && before.is_none() {
            before = Some((records.len(), sent()));
        }
        if records.len() == WARM_UP + TIMED {
            break records;
        }
        assert!(began.elapsed() < LIMIT, "{} of {} steps after {LIMIT:?}", records.len(), WARM_UP + TIMED);
        sleep(Duration::from_millis(20));
    };
    let after = sent();
    drop(cluster);
    let (first, before) = before.expect("steps after the warm-up");
    let steps = (records.len() - first) as f64;
    let of_step = |number: fn(&(u64, u64)) -> u64| {
        let most = after.iter().zip(&before).map(|(after, before)| number(after) - number(before)).max();
        most.unwrap_or(0) as f64 / steps
    };
    let (sent_bytes, dropped) = (of_step(|sent| sent.0), of_step(|sent| sent.1));
    let of = |record: &String| -> f64 {
        let record: serde_json::Value = serde_json::from_str(record).expect("a record");
        record["seconds"].as_f64().expect("seconds")
    };
    Timed { seconds: records.iter().skip(WARM_UP).map(of).collect(), sent_bytes, dropped }
}

/// The seconds of a step that `pleach simulate` predicts for hosts with links of `megabits` a second.
fn predicted(machine: &Cluster, folder: &Folder, megabits: f64) -> f64 {
    let mut hosts = machine.clone();
    hosts.node.accelerators = PROCESSES_PER_HOST;
    hosts.collectives = CollectiveLibrary::Pleach;
    hosts.network = Link { gb_per_s: megabits / 8000.0, efficiency: PAYLOAD, ..machine.network.clone() };
    let file = folder.path("hosts.toml");
    std::fs::write(&file, hosts.to_toml()).expect("a profile");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
    let output = command.args(["simulate", "--json", "--cluster"]).arg(&file).args(options(&RUN)).output();
    let output = output.expect("the command");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let prediction: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a prediction");
    prediction["step_s"].as_f64().expect("seconds")
}

fn main() {
    let given: Vec<f64> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let rates = if given.is_empty() { RATES.to_vec() } else { given };
    let network = Network::of(HOSTS);
    let folder = Folder::new("bench");
    let machine = plan::machine::measure_ranks(HOSTS * PROCESSES_PER_HOST).expect("a profile");
    println!("{}", machine.about);
    println!("link | step, quartiles | simulate | difference | a host sends in a step, and drops");
    for (index, megabits) in rates.into_iter().enumerate() {
        network.set_rate(megabits);
        let Timed { seconds, sent_bytes, dropped } = timed(&network, &folder, &format!("run-{index}"));
        let [lower, median, upper] = quartiles(seconds);
        let predicted = predicted(&machine, &folder, megabits);
        let difference = 100.0 * (predicted / median - 1.0);
        println!(
            "{megabits} Mbit/s | {median:.3} s ({lower:.3} to {upper:.3}) | {predicted:.3} s | {difference:+.1} % | \
             {:.2} MB, {dropped:.1} packets",
            sent_bytes * 1e-6
        );
    }
}
