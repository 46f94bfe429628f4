//! Better hardware never makes a step longer, whatever the layout, the schedule and the trainer.
//!
//! A sample of cases is tried by default; more are tried by
//!
//! ```text
//! PLEACH_CASES=100000 cargo test --release -p plan --test suite faster_hardware::
//! ```
#![allow(clippy::unwrap_used, reason = "a test that fails is one that panics")]

use std::collections::BTreeMap;

use cluster::{Cluster, Software, StreamQueue, named};
use config::{Parallelism, RunConfig};
use plan::PreparedStep;
use plan::search::Candidates;

use crate::drawn::Numbers;

const SAMPLE: u64 = 10_000;

/// Changes a cluster by a factor.
type Improvement = fn(&mut Cluster, f64);

/// Improvements of a cluster.
const BETTER: [(&str, Improvement); 12] = [
    ("products", |cluster, by| {
        cluster.accelerator.half_tflops *= by;
        cluster.accelerator.single_tflops *= by;
    }),
    ("memory", |cluster, by| cluster.accelerator.memory_gb_per_s *= by),
    ("matrix_efficiency", |cluster, by| {
        cluster.compute.matrix_efficiency = share(cluster.compute.matrix_efficiency, by)
    }),
    ("tile_ramp", |cluster, by| cluster.compute.tile_ramp_columns /= by),
    ("attention", |cluster, by| {
        cluster.compute.attention_efficiency = share(cluster.compute.attention_efficiency, by);
        cluster.compute.attention_backward_efficiency = share(cluster.compute.attention_backward_efficiency, by);
    }),
    ("gap", |cluster, by| cluster.compute.kernel_gap_us /= by),
    ("issue", |cluster, by| cluster.compute.issue_us /= by),
    ("contention", |cluster, by| cluster.compute.contention /= by),
    ("link", |cluster, by| cluster.node.link.gb_per_s *= by),
    ("link start and latency", |cluster, by| {
        cluster.node.link.start_us /= by;
        cluster.node.link.latency_us /= by;
    }),
    ("network", |cluster, by| cluster.network.gb_per_s *= by),
    ("network start and latency", |cluster, by| {
        cluster.network.start_us /= by;
        cluster.network.latency_us /= by;
    }),
];

fn share(value: f64, by: f64) -> f64 {
    (value * by).min(1.0)
}

/// The largest node of [`step`].
const LARGEST_NODE: usize = 8;

/// The same cluster with links that are at least as good as the share of the network of an accelerator. A tree over
/// nodes of `m` has a chain of `m - 1` links in each: doubling `m` adds at most [`LARGEST_NODE`] latencies of links and
/// saves two of the network.
fn with_fast_links(cluster: &Cluster) -> Cluster {
    let mut cluster = cluster.clone();
    let share = cluster.network.gb_per_s * cluster.network.efficiency / cluster.node.accelerators as f64;
    let (link, network) = (&mut cluster.node.link, &cluster.network);
    link.gb_per_s = link.gb_per_s.max(share / link.efficiency);
    link.start_us = link.start_us.min(network.start_us);
    link.latency_us = link.latency_us.min(2.0 * network.latency_us / LARGEST_NODE as f64);
    cluster
}

/// Nodes of twice the accelerators, each of which keeps its part of the network.
fn with_larger_nodes(cluster: &Cluster) -> Cluster {
    let mut cluster = cluster.clone();
    cluster.node.accelerators *= 2;
    cluster.network.gb_per_s *= 2.0;
    cluster
}

/// A random step on a random cluster.
fn step(numbers: &mut Numbers) -> (PreparedStep, Cluster, Parallelism) {
    let names: Vec<&str> = cluster::names().collect();
    let mut cluster = Cluster::from_toml(named(numbers.one_of(&names)).unwrap()).unwrap();
    cluster.node.accelerators = 1 << numbers.below(4);
    cluster.compute.issue_us = numbers.below(20) as f64;
    cluster.compute.contention = numbers.below(6) as f64 / 10.0;
    if numbers.below(2) == 0 {
        cluster.accelerator.streams = StreamQueue::InLine;
    }
    let trainers: Vec<&str> = Software::names().collect();
    let software = (numbers.below(4) > 0)
        .then(|| Software::from_toml(Software::named(numbers.one_of(&trainers)).unwrap()).unwrap());
    let overrides = [
        format!("model.num_layers={}", 2 + 2 * numbers.below(4)),
        format!("model.hidden={}", numbers.one_of(&["128", "512", "2048"])),
        "model.num_heads=4".into(),
        "model.vocabulary=4096".into(),
        format!("model.tied_embeddings={}", numbers.below(2) == 0),
        "model.context=256".into(),
        "train.sequence_length=256".into(),
        format!("train.global_batch={}", 16 << numbers.below(2)),
        "train.precision=\"bf16\"".into(),
        "parallelism.dp=1".into(),
        "parallelism.tp=1".into(),
        "parallelism.pp=1".into(),
    ];
    let config = RunConfig::load("", "", &overrides).unwrap();
    let accelerators = 1 << (1 + numbers.below(4));
    let all = Candidates::new(&config, None, accelerators, &BTreeMap::new()).legal;
    let parallelism = all[numbers.below(all.len() as u64) as usize].clone();
    let step = PreparedStep::new(&config.model, &parallelism, &config.train, software.as_ref()).unwrap();
    (step, cluster, parallelism)
}

#[test]
fn better_hardware_never_makes_a_step_longer() {
    let cases = needs::cases!(SAMPLE);
    let steps = cases / (BETTER.len() as u64 + 1);
    std::thread::scope(|scope| {
        for part in 0..2 {
            scope.spawn(move || {
                for number in (part..steps).step_by(2) {
                    let mut numbers = Numbers(number);
                    let (step, cluster, parallelism) = step(&mut numbers);
                    let before = step.on(&cluster).unwrap().step_ns();
                    for (name, improve) in BETTER {
                        let mut better = cluster.clone();
                        let by = 1.0 + numbers.below(200) as f64 / 100.0;
                        improve(&mut better, by);
                        let after = step.on(&better).unwrap().step_ns();
                        assert!(
                            after <= before,
                            "step {number}: {before} ns, and {after} ns with {name} better by {by}; {parallelism:?}"
                        );
                    }
                    let small = with_fast_links(&cluster);
                    let before = step.on(&small).unwrap().step_ns();
                    let after = step.on(&with_larger_nodes(&small)).unwrap().step_ns();
                    assert!(
                        after <= before,
                        "step {number}: {before} ns, and {after} ns in nodes of twice {}; {parallelism:?}",
                        small.node.accelerators
                    );
                }
            });
        }
    });
}
