//! The search finds what simulating everything finds, and its bounds hold.
#![allow(clippy::unwrap_used, reason = "a test that fails is one that panics")]

use std::collections::BTreeMap;

use cluster::{Cluster, named};
use plan::PreparedStep;
use plan::search::bounds::Bounds;
use plan::search::candidates::Candidates;
use plan::search::{Question, search};
use spec::{Parallelism, RunConfig};

/// Numbers below `limit`, one after the other, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// How many random clusters are searched.
const CASES: u64 = 20;

/// A small model on a cluster whose every number is drawn.
fn case(number: u64) -> (RunConfig, Cluster, usize) {
    let mut numbers = Numbers(number);
    let names: Vec<&str> = cluster::names().collect();
    let mut cluster = Cluster::from_toml(named(names[numbers.below(names.len() as u64) as usize]).unwrap()).unwrap();
    cluster.node.accelerators = 1 << numbers.below(4);
    cluster.network.gb_per_s *= 1.0 / (1 + numbers.below(20)) as f64;
    cluster.compute.issue_us = numbers.below(10) as f64;
    cluster.compute.contention = numbers.below(6) as f64 / 10.0;
    let [layers, batch] = [2 + numbers.below(3), 4];
    let precision = if numbers.below(2) == 0 { "bf16" } else { "fp32" };
    let overrides = [
        format!("model.num_layers={layers}"),
        "model.hidden=256".into(),
        format!("model.tied_embeddings={}", numbers.below(2) == 0),
        "train.sequence_length=128".into(),
        format!("train.global_batch={batch}"),
        format!("train.precision={precision}"),
        "parallelism.dp=1".into(),
        "parallelism.tp=1".into(),
        "parallelism.pp=1".into(),
    ];
    (RunConfig::load("", "", &overrides).unwrap(), cluster, 1 << numbers.below(3))
}

/// Every legal layout with its time and memory.
fn everything(config: &RunConfig, cluster: &Cluster, accelerators: usize) -> Vec<(Parallelism, u64, usize)> {
    let mut bounds = Bounds::new(config, cluster, None);
    let mut all = vec![];
    for parallelism in Candidates::new(config, accelerators, &BTreeMap::new()).legal {
        let Some(floor) = bounds.of(&parallelism).unwrap() else { continue };
        let stage_layers = Some(floor.split.layers_per_stage().to_vec());
        let parallelism = Parallelism { stage_layers, ..parallelism };
        let step = PreparedStep::new(&config.model, &parallelism, &config.train, None).unwrap();
        let time = step.on(cluster).unwrap().step_ns();
        let memory = step.memory().iter().map(sim::RankMemory::occupied_bytes).max().unwrap();
        assert!(floor.least_ns <= time, "{parallelism:?}: least {} of {time} ns", floor.least_ns);
        assert!(floor.memory_bytes <= memory as f64, "{parallelism:?}: least {} of {memory}", floor.memory_bytes);
        all.push((parallelism, time, memory));
    }
    all
}

#[test]
fn the_best_three_are_those_of_simulating_everything() {
    for number in 0..CASES {
        let (config, cluster, accelerators) = case(number);
        let all = everything(&config, &cluster, accelerators);
        let mut memories: Vec<usize> = all.iter().map(|(_, _, memory)| *memory).collect();
        memories.sort_unstable();
        // Once everything fits, once half of it.
        for memory_bytes in [memories[memories.len() - 1], memories[memories.len() / 2]] {
            let mut times: Vec<u64> =
                all.iter().filter(|(_, _, memory)| *memory <= memory_bytes).map(|(_, time, _)| *time).collect();
            times.sort_unstable();
            times.truncate(3);
            let fixed = BTreeMap::new();
            let question = Question {
                config: &config,
                cluster: &cluster,
                software: None,
                accelerators,
                fixed: &fixed,
                memory_bytes: memory_bytes as f64,
                top: 3,
            };
            let answer = search(&question).unwrap();
            let found: Vec<u64> = answer.best.iter().map(|found| found.step_ns).collect();
            assert_eq!(found, times, "case {number}");
            let counts = answer.counts;
            assert_eq!(counts.over_memory + counts.over_time + counts.simulated, all.len(), "each is decided once");
        }
    }
}
