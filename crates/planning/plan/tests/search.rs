//! The search finds what simulating everything finds, and its bounds hold.
//!
//! A sample of random clusters is searched by default; more are searched by
//!
//! ```text
//! PLEACH_CASES=1000 cargo test -p plan --test suite search::the_best_three
//! ```
#![allow(clippy::unwrap_used, reason = "a test that fails is one that panics")]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use cluster::{Cluster, Software, StreamQueue, Updates, named};
use config::{Parallelism, RunConfig};
use plan::search::{Candidates, Floors, Found, Question, Recordings, keys, search, search_up_to};

use crate::drawn::Numbers;

/// Random clusters that are searched, unless `PLEACH_CASES` has another number.
const SAMPLE: u64 = 250;
/// How many keys of a random layout are kept: of one that is left over, all combinations are simulated.
const KEPT: usize = 8;

/// A run on a cluster of which every number is drawn, and the keys of its layout that are not searched.
struct Case {
    config: RunConfig,
    cluster: Cluster,
    software: Option<Software>,
    accelerators: usize,
    fixed: BTreeMap<String, String>,
}

impl Case {
    fn new(number: u64) -> Case {
        let mut numbers = Numbers(number);
        let names: Vec<&str> = cluster::names().collect();
        let mut cluster = Cluster::from_toml(named(numbers.one_of(&names)).unwrap()).unwrap();
        cluster.node.accelerators = 1 << numbers.below(4);
        cluster.network.gb_per_s *= 1.0 / (1 + numbers.below(20)) as f64;
        cluster.compute.issue_us = numbers.below(10) as f64;
        cluster.compute.contention = numbers.below(6) as f64 / 10.0;
        cluster.accelerator.streams = numbers.one_of(&[StreamQueue::InLine, StreamQueue::Beside]);
        let trainers: Vec<&str> = Software::names().collect();
        let software = (numbers.below(3) == 0)
            .then(|| Software::from_toml(Software::named(numbers.one_of(&trainers)).unwrap()).unwrap());
        let overrides = [
            format!("model.num_layers={}", 2 + numbers.below(6)),
            "model.hidden=128".into(),
            format!("model.vocabulary={}", numbers.one_of(&["1024", "4099"])),
            format!("model.embedding_norm={}", numbers.below(2) == 0),
            "model.num_heads=4".into(),
            format!("model.tied_embeddings={}", numbers.below(2) == 0),
            "train.sequence_length=64".into(),
            format!("train.global_batch={}", 4 << numbers.below(3)),
            format!("train.precision={}", numbers.one_of(&["\"bf16\"", "\"fp32\""])),
            "parallelism.dp=1".into(),
            "parallelism.tp=1".into(),
            "parallelism.pp=1".into(),
        ];
        let experts = ["model.experts=4", "model.expert_hidden=32", "model.biases=\"attention\""];
        let experts = experts.into_iter().map(String::from).filter(|_| number.is_multiple_of(5));
        let overrides: Vec<String> = overrides.into_iter().chain(experts).collect();
        let config = RunConfig::load("", "", &overrides).unwrap();
        let accelerators = 1 << numbers.below(4);
        let legal =
            |software: Option<&Software>| Candidates::new(&config, software, accelerators, &BTreeMap::new()).legal;
        // A trainer without tensor and pipeline parallelism has no layout for more ranks than sequences.
        let software = software.filter(|software| !legal(Some(software)).is_empty());
        let all = legal(software.as_ref());
        let kept = &all[numbers.below(all.len() as u64) as usize];
        let mut fixed = keys(kept);
        fixed.remove("cp");
        while fixed.len() > KEPT {
            let known: Vec<String> = fixed.keys().cloned().collect();
            fixed.remove(&known[numbers.below(known.len() as u64) as usize]);
        }
        // Sequences as short as these are shared where that is asked for.
        let mut shared = fixed.clone();
        shared.remove("dp");
        shared.insert("cp".into(), "2".into());
        if number.is_multiple_of(4)
            && !Candidates::new(&config, software.as_ref(), accelerators, &shared).legal.is_empty()
        {
            fixed = shared;
        }
        Case { config, cluster, software, accelerators, fixed }
    }

    /// The time and the memory of every legal layout, against which its bounds are held.
    fn everything(&self, number: u64) -> Vec<(u64, usize)> {
        let legal = Candidates::new(&self.config, self.software.as_ref(), self.accelerators, &self.fixed).legal;
        let recordings = Recordings::new(&self.config, &self.cluster, (self.software.as_ref(), 1.0), &legal).unwrap();
        let mut floors = Floors::new(&recordings);
        let mut all = vec![];
        for parallelism in &legal {
            let Some(floor) = floors.of(parallelism) else { continue };
            let stage_layers = Some(floor.split.layers_per_stage().to_vec());
            let parallelism = Parallelism { stage_layers, ..parallelism.clone() };
            let step = recordings.step(&parallelism).unwrap();
            let time = step.on(&self.cluster).unwrap().step_ns();
            let memory = step.memory_bytes();
            let cells = recordings.cells_ns(&parallelism).unwrap();
            for least in [floor.least_ns, cells] {
                assert!(least <= time, "case {number}, {parallelism:?}: least {least} of {time} ns");
            }
            let ranks_wait = self.software.as_ref().is_none_or(|trainer| trainer.updates == Updates::AfterNorm);
            if ranks_wait && parallelism.mesh().unwrap().ranks_per_stage() == 1 {
                assert_eq!(cells, time, "case {number}, {parallelism:?}: nothing is reduced, so nothing is left out");
            }
            for rank in 0..parallelism.degrees.pp {
                let least = recordings.rank_bytes(&parallelism, rank).unwrap();
                assert!(least <= memory, "case {number}, {parallelism:?}: least {least} of {memory} bytes");
            }
            let least = floor.memory_bytes;
            assert!(least <= memory as f64, "case {number}, {parallelism:?}: least {least} of {memory} bytes");
            all.push((time, memory));
        }
        all
    }

    /// The best three in so much memory.
    fn question(&self, memory_bytes: f64) -> Question<'_> {
        Question {
            config: &self.config,
            cluster: &self.cluster,
            software: self.software.as_ref(),
            expert_load: 1.0,
            accelerators: self.accelerators,
            fixed: &self.fixed,
            memory_bytes,
            margin_bytes: 0.0,
            top: 3,
        }
    }

    fn best_three_are_the_best_of_all(&self, number: u64) {
        let all = self.everything(number);
        let mut memories: Vec<usize> = all.iter().map(|(_, memory)| *memory).collect();
        memories.sort_unstable();
        // Once everything fits, once half of it.
        for memory_bytes in [memories[memories.len() - 1], memories[memories.len() / 2]] {
            let answer = search(&self.question(memory_bytes as f64)).unwrap();
            assert_eq!(times(&answer.best), best_three(&all, 0..=memory_bytes), "case {number}");
            let counts = answer.counts;
            assert_eq!(counts.over_memory + counts.over_time + counts.simulated, all.len(), "each is decided once");
            assert!(answer.closer.is_empty(), "case {number}: there is no margin");
            self.closer_ones_are_the_best_that_leave_no_margin(number, &all, memory_bytes);
        }
    }

    /// With a third of the memory as a margin.
    fn closer_ones_are_the_best_that_leave_no_margin(&self, number: u64, all: &[(u64, usize)], memory_bytes: usize) {
        let margin_bytes = memory_bytes / 3;
        let question = Question { margin_bytes: margin_bytes as f64, ..self.question(memory_bytes as f64) };
        let answer = search(&question).unwrap();
        let most = memory_bytes - margin_bytes;
        let best = best_three(all, 0..=most);
        assert_eq!(times(&answer.best), best, "case {number} with a margin");
        let mut closer = best_three(all, most + 1..=memory_bytes);
        closer.retain(|time| best.first().is_none_or(|best| time < best));
        assert_eq!(times(&answer.closer), closer, "case {number} without room");
    }

    /// Where nothing fits, the least memory is that of everything, and the number of accelerators is the first on which
    /// the search finds something. Returns whether there is one.
    fn remedies_are_the_smallest(&mut self, number: u64) -> bool {
        self.fixed.retain(|key, _| !["dp", "cp", "pp"].contains(&key.as_str()));
        let Some(least) = self.everything(number).into_iter().map(|(_, memory)| memory).min() else { return false };
        let question = self.question(least as f64 - 1.0);
        let remedies = question.remedies().unwrap();
        assert_eq!(remedies.least.map(|smallest| smallest.memory_bytes), Some(least), "case {number}");
        let Some(enough) = remedies.accelerators else { return false };
        for accelerators in self.accelerators + 1..=enough {
            let answer = search(&Question { accelerators, ..question.clone() }).unwrap();
            assert_eq!(answer.best.is_empty(), accelerators < enough, "case {number} on {accelerators}");
        }
        true
    }
}

fn times(found: &[Found]) -> Vec<u64> {
    found.iter().map(|found| found.step_ns).collect()
}

/// The times of the best three with so much memory; layouts with the same time and memory count once.
fn best_three(all: &[(u64, usize)], memory: RangeInclusive<usize>) -> Vec<u64> {
    let fitting: BTreeSet<(u64, usize)> = all.iter().filter(|(_, bytes)| memory.contains(bytes)).copied().collect();
    fitting.into_iter().take(3).map(|(time, _)| time).collect()
}

#[test]
fn remedies_are_the_smallest_changes() {
    let found = (0..24).filter(|number| Case::new(*number).remedies_are_the_smallest(*number)).count();
    assert!(found >= 12, "more accelerators suffice in {found} cases");
}

/// Microbatches of one sequence would make too long a program, others would not: none is refused for what another one
/// is.
#[test]
fn each_microbatch_is_judged_by_itself() {
    let overrides = [
        "model.num_layers=40",
        "train.global_batch=2048",
        "parallelism.dp=1",
        "parallelism.tp=1",
        "parallelism.pp=1",
        "parallelism.microbatch_size=32",
    ];
    let config = RunConfig::load("", "", &overrides.map(String::from)).unwrap();
    let Candidates { legal, refusals } = Candidates::new(&config, None, 1, &BTreeMap::new());
    let is_legal = |size: usize| {
        let parallelism = Parallelism { microbatch_size: size, ..config.parallelism.clone() };
        config::check(&RunConfig { parallelism, ..config.clone() }).is_ok()
    };
    let sizes = [1, 2, 4, 8, 16, 32];
    let found = |size: &usize| legal.iter().any(|layout| layout.microbatch_size == *size);
    assert_eq!(sizes.map(|size| found(&size)), sizes.map(is_legal));
    assert_eq!(sizes.map(is_legal), [false, true, true, true, true, true]);
    let (number, problem) = &refusals.by_key["train.global_batch"];
    assert_eq!((refusals.number(), *number), (3, 3), "microbatches of one sequence, with each form of recomputation");
    assert!(problem.to_string().contains("the limit of a program; use parallelism.microbatch_size = "), "{problem}");
}

#[test]
fn the_best_three_are_those_of_simulating_everything() {
    let cases = needs::cases!(SAMPLE);
    std::thread::scope(|scope| {
        for part in 0..2 {
            scope.spawn(move || {
                for number in (part..cases).step_by(2) {
                    Case::new(number).best_three_are_the_best_of_all(number);
                }
            });
        }
    });
}

/// With more accelerators, of which some may stay idle, or more memory, the best layout is never slower; it is the best
/// of all searches with fewer.
#[test]
fn more_accelerators_or_memory_never_make_the_best_layout_slower() {
    let mut slower_alone = 0;
    for number in 0..40 {
        let mut case = Case::new(number);
        case.fixed.retain(|key, _| !["dp", "cp", "tp", "pp"].contains(&key.as_str()));
        let all = case.everything(number);
        let Some(least) = all.iter().map(|(_, memory)| *memory).min() else { continue };
        for memory_bytes in [1.0, 1.3, 4.0].map(|share| share * least as f64) {
            let (mut alone, mut best) = (vec![], u64::MAX);
            for accelerators in 1..=8 {
                let question = Question { accelerators, top: 1, ..case.question(memory_bytes) };
                alone.extend(times(&search(&question).unwrap().best));
                let found = times(&search_up_to(&question).unwrap().best).first().copied().unwrap_or(u64::MAX);
                assert!(found <= best, "case {number}: {found} ns on {accelerators}, {best} on fewer");
                assert_eq!(found, alone.iter().copied().min().unwrap_or(u64::MAX), "case {number} on {accelerators}");
                slower_alone += usize::from(alone.last().is_some_and(|alone| *alone > best));
                best = found;
            }
        }
        let at = |memory_bytes: f64| times(&search_up_to(&case.question(memory_bytes)).unwrap().best)[0];
        let by_memory = [1.0, 1.1, 1.5, 2.0, 8.0].map(|share| at(share * least as f64));
        assert!(by_memory.is_sorted_by(|less, more| more <= less), "case {number}: {by_memory:?}");
    }
    assert!(slower_alone > 0, "in some case all accelerators together are slower than fewer");
}
