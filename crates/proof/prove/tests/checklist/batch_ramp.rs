//! A batch that grows: each step is the step of a run with that batch, in every layout, and nothing but the largest
//! takes memory.

use config::{BatchGrowth, BatchRamp, Parallelism, Recompute, SequenceParallel, TrainSpec};
use device::{LogitGradient, Op};
use testkit::intercepted::alter_ops;
use testkit::models::Style;
use testkit::wrapped_engine::WrapRank;
use train::RankEngine;

use crate::checklist::rig::*;

/// Four steps of 4, 4, 6 and 8 sequences.
fn ramped() -> TrainSpec {
    TrainSpec {
        batch_ramp: Some(BatchRamp { start: 4, increment: 2, sequences: 10, grows: BatchGrowth::Microbatches }),
        ..training(4)
    }
}

/// The same steps, in two microbatches each.
fn ramped_in_size() -> TrainSpec {
    let ramp = BatchRamp { start: 4, increment: 2, sequences: 10, grows: BatchGrowth::MicrobatchSize };
    TrainSpec { batch_ramp: Some(ramp), ..training(4) }
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
            if let Op::CrossEntropy { gradient: Some(LogitGradient { scale, .. }), .. } = op {
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
    assert_holds(same_bits(&one, &run(config::Parallelism { recompute: Recompute::FULL, ..degrees((1, 1, 2)) })));
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

/// Whether the first step of two microbatches of two sequences is that of a run that knows no others.
fn first_step_of_small_microbatches(wrap: &WrapRank<'_>) -> Verdict {
    let model = small_model(Style::Gpt2, true);
    let train = TrainSpec { steps: 1, ..ramped_in_size() };
    let plain = TrainSpec { global_batch: 4, batch_ramp: None, ..train.clone() };
    let layout = |microbatch_size| Parallelism { microbatch_size, ..degrees((1, 1, 2)) };
    let plain = Case::new(&model, layout(2), &plain).tokens(&RAGGED).outcome().expect("runs");
    let ramped = Case::new(&model, layout(4), &train).tokens(&RAGGED).wrapped(wrap).outcome();
    ramped.and_then(|ramped| same_bits(&plain, &ramped))
}

#[test]
fn a_small_microbatch_is_a_microbatch() {
    assert_holds(first_step_of_small_microbatches(&untouched));
    // The dropout of the second microbatch, as if the first had its full size.
    let misplaced = |_, rank: RankEngine| {
        alter_ops(rank, |op| {
            if let Op::DropoutAdd { dropout: Some(key), .. } | Op::DropoutBackward { dropout: key, .. } = op
                && key.first_token > 0
            {
                key.first_token *= 2;
            }
        })
    };
    assert_found(first_step_of_small_microbatches(&misplaced), "bits differ");
}

#[test]
fn microbatches_that_grow_learn_what_more_microbatches_learn() {
    let (model, train) = (small_model(Style::Llama, false), ramped_in_size());
    let layout = |at, microbatch_size| Parallelism { microbatch_size, ..degrees(at) };
    let case = |layout: Parallelism| Case::new(&model, layout, &train).tokens(&RAGGED);
    let setup = case(layout((1, 1, 1), 4)).setup();
    let sizes: Vec<(usize, usize)> =
        setup.workloads.iter().map(|workload| (workload.num_microbatches, workload.shape.sequences)).collect();
    assert_eq!(sizes, [(2, 4), (2, 3), (2, 2)]);
    let one = case(layout((1, 1, 1), 4)).outcome().expect("runs");
    assert_holds(same_bits(&one, &case(layout((1, 1, 2), 4)).outcome().expect("runs")));
    let shared = Parallelism { sequence_parallel: SequenceParallel::On, ..layout((1, 2, 2), 4) };
    for layout in [layout((2, 1, 2), 4), layout((2, 2, 1), 4), shared] {
        assert_holds(within_bounds(&model, &one, &case(layout).outcome().expect("runs")));
    }
    let more = Case::new(&model, layout((1, 1, 1), 1), &ramped()).tokens(&RAGGED).outcome().expect("runs");
    assert_holds(within_bounds(&model, &one, &more));
}

#[test]
fn memory_is_that_of_the_largest_microbatch() {
    let (model, train) = (small_model(Style::Gpt2, true), ramped_in_size());
    let arenas = |train: &TrainSpec| {
        let setup = Case::new(&model, Parallelism { microbatch_size: 4, ..degrees((1, 1, 2)) }, train).setup();
        [0, 1].map(|stage| setup.programs.arena_bytes(stage))
    };
    assert_eq!(arenas(&train), arenas(&TrainSpec { batch_ramp: None, ..train.clone() }));
}
