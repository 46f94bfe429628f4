//! A step's share of the peak is at most one, whatever the cluster, the precision and the model.
#![allow(clippy::unwrap_used, reason = "a test that fails is one that panics")]

use cluster::{Cluster, Software, named, names};
use config::RunConfig;
use plan::PreparedStep;

/// Hidden width, heads, tokens of a sequence, sequences of a microbatch.
const SIZES: [[usize; 4]; 3] = [[256, 4, 128, 8], [2048, 16, 2048, 1], [512, 8, 16384, 1]];

fn step([hidden, heads, tokens, sequences]: [usize; 4], precision: &str, software: Option<&Software>) -> PreparedStep {
    let keys = [
        "model.num_layers=4".to_string(),
        format!("model.hidden={hidden}"),
        format!("model.num_heads={heads}"),
        format!("model.context={tokens}"),
        format!("train.sequence_length={tokens}"),
        format!("train.global_batch={}", 2 * sequences),
        format!("train.precision={precision}"),
        "parallelism.dp=1".into(),
        "parallelism.tp=1".into(),
        "parallelism.pp=1".into(),
        "parallelism.zero=0".into(),
        format!("parallelism.microbatch_size={sequences}"),
    ];
    let RunConfig { model, parallelism, train, .. } = RunConfig::load("", "", &keys).unwrap();
    PreparedStep::new(&model, &parallelism, &train, software).unwrap()
}

#[test]
fn no_step_uses_more_than_the_peak_of_its_precision() {
    let trainers = ["megatron-2021", "torchtitan-2024"];
    let trainers = trainers.map(|name| Software::from_toml(Software::named(name).unwrap()).unwrap());
    let trainers: Vec<Option<&Software>> = std::iter::once(None).chain(trainers.iter().map(Some)).collect();
    for size in SIZES {
        for precision in ["fp32", "bf16", "fp16"] {
            for software in &trainers {
                let step = step(size, precision, *software);
                for name in names() {
                    let cluster = Cluster::from_toml(named(name).unwrap()).unwrap();
                    let prediction = step.on(&cluster).unwrap();
                    let trainer = software.map_or("pleach", |software| &software.name);
                    let mfu = step.mfu(&cluster, prediction.step_ns());
                    assert!(mfu <= 1.0, "{name}, {trainer}, {precision}, {size:?}: mfu {:.0} %", 100.0 * mfu);
                    // Of one rank, the model's operations at the peak are a part of the step.
                    let at_peak_ns = step.model_flops_per_rank() / step.peak_flops_per_ns(&cluster);
                    let spent = prediction.spent.at_peak_ns as f64;
                    assert!(
                        (spent / at_peak_ns - 1.0).abs() < 1e-3,
                        "{name}, {trainer}, {precision}, {size:?}: {spent} ns at the peak, of {at_peak_ns}"
                    );
                }
            }
        }
    }
}
