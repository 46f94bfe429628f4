//! The automatic schedule against the ones that it is to beat, with stages that are not alike, for the last has the
//! head.
#![allow(clippy::unwrap_used, reason = "a test that fails is one that panics")]

use cluster::{Cluster, named};
use config::RunConfig;
use plan::PreparedStep;
use program::StepTimes;
use train::StepOrder;

/// Layers, pp, tp and microbatches.
const CASES: [[usize; 4]; 8] = [
    [16, 4, 1, 8],
    [16, 4, 2, 16],
    [14, 8, 1, 16],
    [24, 8, 4, 24],
    [10, 4, 1, 4],
    [10, 4, 2, 32],
    [12, 6, 1, 12],
    [18, 2, 1, 6],
];

fn config([layers, pp, tp, microbatches]: [usize; 4], schedule: &str) -> RunConfig {
    let mut overrides = vec![
        format!("model.num_layers={layers}"),
        "model.hidden=2048".into(),
        "model.num_heads=16".into(),
        "model.vocabulary=32768".into(),
        "model.context=1024".into(),
        "train.sequence_length=1024".into(),
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

/// The end of a step by the recorded times of its passes.
fn recorded_end(config: &RunConfig) -> u64 {
    let order = StepOrder::new(&config.model, &config.parallelism, &config.train).unwrap();
    let (graph, _) = order.training_step().unwrap();
    StepTimes::new(&graph, &order.times).end()
}

#[test]
fn the_automatic_schedule_is_no_slower_than_the_handmade_ones_of_its_memory() {
    for case in CASES {
        for (handmade, percent) in [("zb-h1", 100), ("zb-h2", 200)] {
            let auto = config(case, &format!("schedule=\"zb-auto\" schedule_memory_percent={percent}"));
            let handmade = config(case, &format!("schedule=\"{handmade}\""));
            let (own, other) = (recorded_end(&auto), recorded_end(&handmade));
            // Cells are timed whole by the schedule and unit by unit by the clock: rounding is all that differs.
            assert!(own as f64 <= other as f64 * (1.0 + 1e-6), "{case:?} at {percent} %: {own}, handmade {other}");
        }
    }
}

/// Clusters whose shares of products, memory and links in a step differ most.
const PROFILES: [&str; 5] = ["v100-32g-dgx1", "a100-80g-dgx", "a100-80g-pcie", "h100-80g-dgx", "b200-180g-dgx"];

/// With the memory of ZB-H1, which it follows where other times than the recorded ones could make it later.
#[test]
fn the_automatic_schedule_is_no_slower_on_clusters_than_zb_h1() {
    let mut slower = vec![];
    for case in CASES {
        let schedules = ["schedule=\"zb-auto\" schedule_memory_percent=100", "schedule=\"zb-h1\""];
        let [auto, handmade] = schedules.map(|schedule| {
            let RunConfig { model, parallelism, train, .. } = config(case, schedule);
            PreparedStep::new(&model, &parallelism, &train, None).unwrap()
        });
        for name in PROFILES {
            let cluster = Cluster::from_toml(named(name).unwrap()).unwrap();
            let [own, other] = [&auto, &handmade].map(|step| step.on(&cluster).unwrap().step_ns());
            if own > other {
                slower.push(format!("{name}, {case:?}: {own}, handmade {other} ns"));
            }
        }
    }
    assert_eq!(slower, Vec::<String>::new());
}
