//! The automatic schedule against the ones that it is to beat, with stages that are not alike, for the last has the
//! head: on the recorded times of passes, and on clusters.
//!
//! A sample of random steps is tried by default; more are tried by the following command. The schedule knows no
//! cluster, so that of many steps a few are slower there.
//!
//! ```text
//! PLEACH_CASES=1000 cargo test --release -p plan --test suite zero_bubble::
//! ```
#![allow(clippy::unwrap_used, reason = "a test that fails is one that panics")]

use cluster::{Cluster, named};
use config::RunConfig;
use plan::PreparedStep;
use program::StepTimes;
use train::StepOrder;

use crate::drawn::Numbers;

/// Random steps that are tried, unless `PLEACH_CASES` has another number.
const SAMPLE: u64 = 16;
/// Of many steps on clusters, one in this number may be slower.
const MOST_SLOWER: usize = 500;

/// The handmade schedules, and the memory that each needs in hundredths of that of 1F1B.
const HANDMADE: [(&str, usize); 2] = [("zb-h1", 100), ("zb-h2", 200)];

/// Clusters whose shares of products, memory and links in a step differ most.
const PROFILES: [&str; 5] = ["v100-32g-dgx1", "a100-80g-dgx", "a100-80g-pcie", "h100-80g-dgx", "b200-180g-dgx"];

/// A model and how it is divided.
#[derive(Clone, Copy, Debug)]
struct Case {
    layers: usize,
    pp: usize,
    tp: usize,
    microbatches: usize,
    hidden: usize,
    tokens: usize,
    vocabulary: usize,
}

impl Case {
    const fn usual([layers, pp, tp, microbatches]: [usize; 4]) -> Case {
        Case { layers, pp, tp, microbatches, hidden: 2048, tokens: 1024, vocabulary: 32_768 }
    }

    fn random(seed: u64) -> Case {
        let mut numbers = Numbers(seed);
        let pp = numbers.one_of(&[2, 3, 4, 6, 8]);
        Case {
            layers: pp + numbers.below(3 * pp as u64) as usize,
            pp,
            tp: numbers.one_of(&[1, 2, 4, 8]),
            microbatches: pp + numbers.below(3 * pp as u64) as usize,
            hidden: numbers.one_of(&[1024, 2048, 4096, 8192]),
            tokens: numbers.one_of(&[1024, 2048, 8192]),
            vocabulary: numbers.one_of(&[32_768, 131_072]),
        }
    }

    fn config(self, schedule: &str) -> RunConfig {
        let Case { layers, pp, tp, microbatches, hidden, tokens, vocabulary } = self;
        let mut overrides = vec![
            format!("model.num_layers={layers}"),
            format!("model.hidden={hidden}"),
            format!("model.num_heads={}", hidden / 128),
            format!("model.vocabulary={vocabulary}"),
            format!("model.context={tokens}"),
            format!("train.sequence_length={tokens}"),
            "train.precision=\"bf16\"".into(),
            format!("train.global_batch={microbatches}"),
            "parallelism.dp=1".into(),
            format!("parallelism.tp={tp}"),
            format!("parallelism.pp={pp}"),
            "parallelism.microbatch_size=1".into(),
        ];
        overrides.extend(schedule.split(' ').map(|key| format!("parallelism.{key}")));
        RunConfig::load("", "", &overrides).unwrap()
    }

    /// The run with a handmade schedule, and with the automatic one of its memory.
    fn pair(self, (handmade, percent): (&str, usize)) -> [RunConfig; 2] {
        let auto = format!("schedule=\"zb-auto\" schedule_memory_percent={percent}");
        [auto, format!("schedule=\"{handmade}\"")].map(|schedule| self.config(&schedule))
    }
}

const CHOSEN: [Case; 8] = [
    Case::usual([16, 4, 1, 8]),
    Case::usual([16, 4, 2, 16]),
    Case::usual([14, 8, 1, 16]),
    Case::usual([24, 8, 4, 24]),
    Case::usual([10, 4, 1, 4]),
    Case::usual([10, 4, 2, 32]),
    Case::usual([12, 6, 1, 12]),
    Case::usual([18, 2, 1, 6]),
];

fn cases() -> Vec<Case> {
    let number = needs::cases!(SAMPLE);
    CHOSEN.into_iter().chain((0..number).map(Case::random)).collect()
}

/// The end of a step by the recorded times of its passes.
fn recorded_end(config: &RunConfig) -> u64 {
    let order = StepOrder::new(&config.model, &config.parallelism, &config.train).unwrap();
    let (graph, _) = order.training_step().unwrap();
    StepTimes::new(&graph, &order.times).end()
}

#[test]
fn the_automatic_schedule_is_no_slower_than_the_handmade_ones_of_its_memory() {
    for case in cases() {
        for handmade in HANDMADE {
            let [own, other] = case.pair(handmade).map(|config| recorded_end(&config));
            // Cells are timed whole by the schedule and unit by unit by the clock: rounding is all that differs.
            assert!(own as f64 <= other as f64 * (1.0 + 1e-6), "{case:?}, {handmade:?}: {own}, handmade {other}");
        }
    }
}

/// It follows the handmade schedule of its memory where other times than the recorded ones could make it later.
#[test]
fn the_automatic_schedule_is_no_slower_on_clusters_than_the_handmade_ones() {
    let (cases, mut slower, mut faster) = (cases(), vec![], [0, 0]);
    for case in &cases {
        for (number, handmade) in HANDMADE.into_iter().enumerate() {
            let [auto, other] = case.pair(handmade).map(|config| {
                let RunConfig { model, parallelism, train, .. } = config;
                PreparedStep::new(&model, &parallelism, &train, None).unwrap()
            });
            for name in PROFILES {
                let cluster = Cluster::from_toml(named(name).unwrap()).unwrap();
                let [own, other] = [&auto, &other].map(|step| step.on(&cluster).unwrap().step_ns());
                faster[number] += usize::from(own < other);
                if own > other {
                    slower.push(format!("{name}, {case:?}, {handmade:?}: {own}, handmade {other} ns"));
                }
            }
        }
    }
    println!("of {} steps each, {faster:?} are faster than with the handmade schedules", cases.len() * PROFILES.len());
    // Of a sample of so few, none may be slower.
    let (few, all) = (slower.len(), HANDMADE.len() * cases.len() * PROFILES.len());
    assert!(few * MOST_SLOWER <= all, "{few} of {all}: {slower:#?}");
}
