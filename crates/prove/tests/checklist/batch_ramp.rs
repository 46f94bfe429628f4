//! A batch that grows: each step is the step of a run with that batch, in every layout, and nothing but the largest takes memory.

use device::Op;
use prove::intercepted::alter_ops;
use prove::models::Style;
use prove::wrapped_engine::WrapRank;
use spec::{BatchRamp, Recompute, TrainSpec};
use train::RankEngine;

use crate::rig::*;

/// Four steps of 4, 4, 6 and 8 sequences.
fn ramped() -> TrainSpec {
    TrainSpec { batch_ramp: Some(BatchRamp { start: 4, increment: 2, sequences: 10 }), ..training(4) }
}

/// Whether the first step of the ramp is the only step of a run with the batch that the ramp begins with.
fn first_step(wrap: &WrapRank<'_>) -> Verdict {
    let model = small_model(Style::Gpt2, true);
    let ramped = TrainSpec { steps: 1, ..ramped() };
    let plain = TrainSpec { global_batch: 4, batch_ramp: None, ..ramped.clone() };
    let plain = Case::new(&model, degrees((1, 1, 2)), &plain).outcome().expect("runs");
    let ramped = Case::new(&model, degrees((1, 1, 2)), &ramped).wrapped(wrap).outcome();
    ramped.and_then(|ramped| same_bits(&plain, &ramped))
}

#[test]
fn a_small_batch_is_a_batch() {
    assert_holds(first_step(&untouched));
    let scaled_for_the_full_batch = |_, rank: RankEngine| {
        alter_ops(rank, |op| {
            if let Op::CrossEntropy { gradient_scale: Some(scale), .. } = op {
                *scale *= 0.5;
            }
        })
    };
    assert_found(first_step(&scaled_for_the_full_batch), "bits differ");
}

#[test]
fn layouts_learn_the_same_while_the_batch_grows() {
    let (model, train) = (small_model(Style::Llama, false), ramped());
    assert_eq!((0..4).map(|step| train.batches().at(step).sequences).collect::<Vec<_>>(), [4, 4, 6, 8]);
    let run = |layout| Case::new(&model, layout, &train).outcome().expect("runs");
    let one = run(degrees((1, 1, 1)));
    assert_holds(same_bits(&one, &run(degrees((1, 1, 2)))));
    assert_holds(same_bits(&one, &run(spec::Parallelism { recompute: Recompute::FULL, ..degrees((1, 1, 2)) })));
    for at in [(2, 1, 1), (1, 2, 1), (2, 2, 2)] {
        assert_holds(within_bounds(&model, &one, &run(degrees(at))));
    }
}

#[test]
fn memory_is_that_of_the_full_batch() {
    let (model, train) = (small_model(Style::Gpt2, true), ramped());
    let arenas = |train: &TrainSpec| {
        let setup = Case::new(&model, degrees((1, 1, 2)), train).setup();
        [0, 1].map(|stage| setup.programs.arena_bytes(stage))
    };
    assert_eq!(arenas(&train), arenas(&TrainSpec { batch_ramp: None, ..train.clone() }));
}
