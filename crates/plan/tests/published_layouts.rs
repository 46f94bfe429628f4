//! The layouts that NVIDIA publishes for Llama 3.1 in bf16 on H100s, and those that the search finds for the same
//! trainer: NVIDIA/NeMo @000e8c17a36b, 2025, scripts/performance/recommended_model_configs/model_configs_h100.csv, and
//! @00aa2e12802f, nemo/collections/llm/recipes/llama31_405b.py. Layouts alone: no measured time is compared.
//!
//! The smallest model is searched by default; all are searched, and the table of docs/planner.md is printed, by
//!
//! ```text
//! PLEACH_PUBLISHED=all cargo test --release -p plan --test published_layouts -- --nocapture
//! ```
#![allow(clippy::unwrap_used, reason = "a test that fails is one that panics")]

mod llama;

use std::collections::BTreeMap;

use cluster::{Cluster, Software, named};
use plan::search::{Found, MEMORY_MARGIN, Question, keys, search};

use llama::{LLAMA_8B, LLAMA_70B, LLAMA_405B, run};

/// Sets how many of the runs are searched.
const RUNS: &str = "PLEACH_PUBLISHED";

/// A published layout.
struct Published {
    name: &'static str,
    model: [usize; 4],
    accelerators: usize,
    sequences: usize,
    keys: &'static [(&'static str, &'static str)],
}

/// Of sequences of 8,192 tokens, all with ZeRO-1, microbatches of one and sequence parallelism where tp is above 1. On
/// 512 GPUs the published layout for 1,024 has half the replicas.
const PUBLISHED: [Published; 4] = [
    Published {
        name: "8B",
        model: LLAMA_8B,
        accelerators: 8,
        sequences: 128,
        keys: &[("tp", "1"), ("pp", "1"), ("cp", "2"), ("schedule", "1f1b"), ("sequence_parallel", "false")],
    },
    Published {
        name: "70B",
        model: LLAMA_70B,
        accelerators: 64,
        sequences: 128,
        keys: &[
            ("tp", "4"),
            ("pp", "4"),
            ("cp", "2"),
            ("schedule", "interleaved"),
            ("stages_per_rank", "5"),
            ("sequence_parallel", "true"),
        ],
    },
    Published {
        name: "405B",
        model: LLAMA_405B,
        accelerators: 512,
        sequences: 512,
        keys: &[
            ("tp", "8"),
            ("pp", "8"),
            ("cp", "2"),
            ("schedule", "interleaved"),
            ("stages_per_rank", "8"),
            ("sequence_parallel", "true"),
        ],
    },
    Published {
        name: "405B",
        model: LLAMA_405B,
        accelerators: 576,
        sequences: 512,
        keys: &[
            ("tp", "8"),
            ("pp", "9"),
            ("cp", "4"),
            ("schedule", "interleaved"),
            ("stages_per_rank", "2"),
            ("sequence_parallel", "true"),
        ],
    },
];

/// Keys that all published layouts have.
const OF_ALL: [(&str, &str); 4] = [("zero", "1"), ("microbatch_size", "1"), ("recompute", "none"), ("cp_kind", "ring")];

impl Published {
    /// The best layout that leaves `margin` of the memory, or as much memory as it needs, of those that agree with
    /// `fixed`.
    fn best(&self, fixed: &[(&str, &str)], memory_bytes: f64, margin: f64) -> Option<Found> {
        let config = run(self.model, (self.sequences, 8192));
        let (cluster, software) = (cluster(), Software::from_toml(Software::named("nemo-2025").unwrap()).unwrap());
        let fixed: BTreeMap<String, String> =
            fixed.iter().map(|(key, value)| ((*key).to_string(), (*value).to_string())).collect();
        let question = Question {
            config: &config,
            cluster: &cluster,
            software: Some(&software),
            accelerators: self.accelerators,
            fixed: &fixed,
            memory_bytes,
            margin_bytes: margin * memory_bytes,
            top: 1,
        };
        search(&question).unwrap().best.into_iter().next()
    }
}

fn cluster() -> Cluster {
    Cluster::from_toml(named("h100-80g-dgx").unwrap()).unwrap()
}

#[test]
fn the_search_finds_layouts_as_fast_as_those_that_nvidia_publishes() {
    let number = if std::env::var(RUNS).is_ok() { PUBLISHED.len() } else { 1 };
    let memory_bytes = cluster().accelerator.memory_bytes();
    for published in &PUBLISHED[..number] {
        let theirs = published.best(&[published.keys, &OF_ALL].concat(), 1e15, 0.0).expect("a legal layout");
        let alone: Vec<_> = published.keys.iter().filter(|(key, _)| *key != "cp").copied().collect();
        let without = published.best(&[&alone[..], &OF_ALL, &[("cp", "1")]].concat(), memory_bytes, MEMORY_MARGIN);
        let ours = published.best(&[], memory_bytes, MEMORY_MARGIN).expect("a layout that fits");
        let shown = |found: &Found| {
            let (seconds, gigabytes) = (found.step_ns as f64 * 1e-9, found.memory_bytes as f64 * 1e-9);
            format!("{seconds:.3} s, {gigabytes:.1} GB, {:?}", keys(&found.parallelism))
        };
        println!("{} on {}", published.name, published.accelerators);
        println!("  published: {}\n  found: {}", shown(&theirs), shown(&ours));
        println!("  published with cp 1: {}", without.as_ref().map_or("does not fit".into(), shown));
        let leaves_margin = theirs.memory_bytes as f64 <= (1.0 - MEMORY_MARGIN) * memory_bytes;
        assert!(ours.step_ns <= theirs.step_ns || !leaves_margin, "{}", published.name);
        assert!(ours.memory_bytes as f64 <= (1.0 - MEMORY_MARGIN) * memory_bytes, "{}", published.name);
    }
}
