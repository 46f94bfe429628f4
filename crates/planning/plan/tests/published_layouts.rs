//! The layouts that NVIDIA publishes for Llama 3.1 in bf16 on H100s, and those that the search finds for the same
//! trainer. Layouts alone: no measured time is compared. The sources are NVIDIA-NeMo/Megatron-Bridge @00919dcf1fe1 and
//! @0013c9a8ed4d, 2025, scripts/performance/configs/llama: llama3_workload_base_configs.py (8B, 70B) and
//! llama31_workload_base_configs.py (405B on 1,024 GPUs); and NVIDIA/NeMo @00aa2e12802f,
//! nemo/collections/llm/recipes/llama31_405b.py (on 576).
//!
//! The table of docs/planner.md has the times and memory of all of them. It is printed by
//!
//! ```text
//! cargo test -p plan --test suite published_layouts:: -- --nocapture
//! ```
#![allow(clippy::unwrap_used, reason = "a test that fails is one that panics")]

use std::collections::BTreeMap;
use std::fmt::Write as _;

use cluster::{Cluster, Software, named};
use config::{Degrees, context_kind_name};
use plan::search::{Found, MEMORY_MARGIN, Question, keys, search};

use crate::llama::{LLAMA_8B, LLAMA_70B, LLAMA_405B, run};

const PAGE: &str = include_str!("../../../../docs/planner.md");

/// A published layout, and that of the table.
struct Published {
    name: &'static str,
    model: [usize; 4],
    accelerators: usize,
    sequences: usize,
    trainer: &'static str,
    /// Keys that the layout has besides [`OF_ALL`].
    keys: &'static str,
    /// Keys of the layout that the search finds.
    found: &'static str,
}

/// Keys that all published layouts have. Their context parallelism passes blocks on: `cp_comm_type = "p2p"`.
const OF_ALL: &str = "zero=1 microbatch_size=1 recompute=none cp_kind=ring";

/// Of sequences of 8,192 tokens. On 512 GPUs the published layout for 1,024 has half the replicas. On 576 GPUs the
/// published batch of 512 makes 256 microbatches, which are not whole groups of 9: there are 504.
const PUBLISHED: [Published; 5] = [
    Published {
        name: "8B",
        model: LLAMA_8B,
        accelerators: 8,
        sequences: 128,
        trainer: "megatron-bridge-2025",
        keys: "tp=1 pp=1 cp=2 schedule=1f1b sequence_parallel=false",
        found: "dp=4 cp=1 tp=1 pp=2 zero=1 microbatch_size=1 recompute=none schedule=interleaved stages_per_rank=6",
    },
    Published {
        name: "70B",
        model: LLAMA_70B,
        accelerators: 64,
        sequences: 128,
        trainer: "megatron-bridge-2025",
        keys: "tp=4 pp=4 cp=2 schedule=interleaved stages_per_rank=5 sequence_parallel=true",
        found: "dp=4 cp=2 tp=4 pp=2 cp_kind=gather zero=1 microbatch_size=1 recompute=none schedule=interleaved \
                stages_per_rank=20 sequence_parallel=true",
    },
    Published {
        name: "405B",
        model: LLAMA_405B,
        accelerators: 512,
        sequences: 512,
        trainer: "megatron-bridge-2025",
        keys: "tp=8 pp=8 cp=2 schedule=interleaved stages_per_rank=8 sequence_parallel=true",
        found: "dp=4 cp=2 tp=8 pp=8 cp_kind=gather zero=1 microbatch_size=1 recompute=none schedule=interleaved \
                stages_per_rank=8 sequence_parallel=true",
    },
    Published {
        name: "405B",
        model: LLAMA_405B,
        accelerators: 1024,
        sequences: 512,
        trainer: "megatron-bridge-2025",
        keys: "tp=8 pp=8 cp=2 schedule=interleaved stages_per_rank=8 sequence_parallel=true",
        found: "dp=8 cp=2 tp=8 pp=8 cp_kind=gather zero=1 microbatch_size=1 recompute=none schedule=interleaved \
                stages_per_rank=8 sequence_parallel=true",
    },
    Published {
        name: "405B",
        model: LLAMA_405B,
        accelerators: 576,
        sequences: 504,
        trainer: "nemo-2025",
        keys: "tp=8 pp=9 cp=4 schedule=interleaved stages_per_rank=2 sequence_parallel=true",
        found: "dp=3 cp=2 tp=8 pp=12 cp_kind=gather zero=1 microbatch_size=1 recompute=none schedule=interleaved \
                stages_per_rank=6 sequence_parallel=true",
    },
];

/// Keys with their values, as `--fix` takes them.
fn fixed(keys: &str) -> BTreeMap<String, String> {
    let pairs = keys.split_whitespace().map(|pair| pair.split_once('=').unwrap());
    pairs.map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

impl Published {
    /// The best layout that agrees with `fixed` and leaves the margin in `memory_bytes`.
    fn best(&self, fixed: &BTreeMap<String, String>, memory_bytes: f64) -> Option<Found> {
        let config = run(self.model, (self.sequences, 8192));
        let (cluster, software) = (cluster(), Software::from_toml(Software::named(self.trainer).unwrap()).unwrap());
        let question = Question {
            config: &config,
            cluster: &cluster,
            software: Some(&software),
            expert_load: 1.0,
            accelerators: self.accelerators,
            fixed,
            memory_bytes,
            margin_bytes: MEMORY_MARGIN * memory_bytes,
            top: 1,
        };
        search(&question).unwrap().best.into_iter().next()
    }

    /// The layout with these keys, whatever memory it needs.
    fn one(&self, keys: &str) -> Found {
        self.best(&fixed(keys), 1e15).expect("a legal layout")
    }

    /// The published layout, and the same with other keys.
    fn published(&self, changed: &str) -> Found {
        let mut all = fixed(&format!("{OF_ALL} {}", self.keys));
        all.extend(fixed(changed));
        if all["cp"] == "1" {
            all.remove("cp_kind");
        }
        self.best(&all, 1e15).expect("a legal layout")
    }

    /// The line of the table.
    fn line(&self, found: &Found) -> String {
        let theirs = self.published("");
        let mut line = format!("| {} | {} | {} | `{}` |", self.name, self.accelerators, self.sequences, self.trainer);
        for layout in [&theirs, found] {
            write!(line, " {} | {} |", written(layout), price(layout)).unwrap();
        }
        let shorter = 100.0 * (1.0 - found.step_ns as f64 / theirs.step_ns as f64);
        write!(line, " {shorter:.1} % | {} | {} |", price(&self.published("cp_kind=gather")), {
            price(&self.published("cp=1"))
        })
        .unwrap();
        line
    }

    fn is_no_slower_and_leaves_the_margin(&self, found: &Found) {
        let theirs = self.published("");
        let most = (1.0 - MEMORY_MARGIN) * cluster().accelerator.memory_bytes();
        assert!(theirs.memory_bytes as f64 <= most, "{}: the published layout fits", self.name);
        assert!(found.memory_bytes as f64 <= most, "{}", self.name);
        assert!(found.step_ns <= theirs.step_ns, "{} on {}", self.name, self.accelerators);
    }
}

fn price(found: &Found) -> String {
    format!("{:.2} s, {:.1} GB", found.step_ns as f64 * 1e-9, found.memory_bytes as f64 * 1e-9)
}

/// The layout, without the keys that all of them have.
fn written(found: &Found) -> String {
    let keys = keys(&found.parallelism);
    let expected = [("zero", "1"), ("microbatch_size", "1"), ("recompute", "none")];
    expected.iter().for_each(|(key, value)| assert_eq!(keys[*key], *value, "the text above the table says so"));
    let Degrees { dp, cp, tp, pp } = found.parallelism.degrees;
    let mut text = format!("dp {dp}");
    if cp > 1 {
        write!(text, " x cp {cp} by {}", context_kind_name(found.parallelism.context.kind)).unwrap();
    }
    write!(text, " x tp {tp} x pp {pp}").unwrap();
    if keys["schedule"] == "interleaved" {
        write!(text, ", {} stages", keys["stages_per_rank"]).unwrap();
    }
    text
}

fn cluster() -> Cluster {
    Cluster::from_toml(named("h100-80g-dgx").unwrap()).unwrap()
}

#[test]
fn the_page_has_the_published_layouts_and_those_that_are_found() {
    let lines: Vec<String> = std::thread::scope(|scope| {
        let of_one = |published: &'static Published| {
            scope.spawn(move || {
                let found = published.one(published.found);
                published.is_no_slower_and_leaves_the_margin(&found);
                published.line(&found)
            })
        };
        let threads: Vec<_> = PUBLISHED.iter().map(of_one).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let missing: Vec<&String> = lines.iter().filter(|line| !PAGE.lines().any(|other| other == line.as_str())).collect();
    assert!(missing.is_empty(), "docs/planner.md needs these lines:\n{missing:#?}");
}

#[test]
fn the_search_finds_layouts_as_fast_as_those_that_nvidia_publishes() {
    for published in &PUBLISHED {
        let memory_bytes = cluster().accelerator.memory_bytes();
        let found = published.best(&BTreeMap::new(), memory_bytes).expect("a layout that fits");
        published.is_no_slower_and_leaves_the_margin(&found);
        println!("{}", published.line(&found));
        let of_page = fixed(published.found);
        let found = keys(&found.parallelism);
        assert!(of_page.iter().all(|(key, value)| found[key] == *value), "{}: {found:?}", published.name);
    }
}
