//! Exact sums of gradients: what groups sequences differently changes no bit, and what does not fit is found out by all
//! ranks.

#![allow(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::cell::Cell;
use std::collections::BTreeSet;

use config::{
    BatchGrowth, BatchRamp, Gathering, GivenSchedule, GradientReduction, GradientSums, LossScaling, ModelSpec,
    Parallelism, Precision, Products, Recompute, Reshard, ScheduleKind, ScheduleSpec, SequenceParallel, TopQuery,
    TrainSpec, ZeroStage,
};
use device::Op;
use mesh::{Axis, AxisSet, Coord};
use prove::{EqualityClass, NoWatch, Outcome, ProofError, outcome_watched, weights_hash};
use testkit::intercepted::intercept_ops;
use testkit::layout::Layout;
use testkit::models::{Style, plain_layout, proof_model, proof_training};
use testkit::text::{Labels, ProofText};
use testkit::wrapped_engine::WrappedEngine;
use train::{RankEngine, TrainError, UpdateOutcome};

/// Sequences have between none and all of their labels, and some are several documents.
const TEXT: ProofText = ProofText { vocabulary: 61, seed: 7, labels: Labels::Ragged };

/// Tied with learned positions, biases, dropout and a top query, or untied with norms of query and key heads.
fn model(style: Style) -> ModelSpec {
    let proof = ModelSpec { num_layers: 2, ..proof_model(style, 4, style == Style::Gpt2) };
    match style {
        Style::Gpt2 => ModelSpec { dropout: 0.1, attention_dropout: 0.1, top_query: TopQuery::On, ..proof },
        Style::Llama => ModelSpec { qk_norm: config::QkNorm::Heads, ..proof },
    }
}

fn training(precision: Precision, sums: GradientSums) -> TrainSpec {
    let plain = TrainSpec { steps: 3, global_batch: 8, warmup_steps: 1, ..proof_training() };
    TrainSpec { embedding_gradient_scale: 0.1, precision, sums, ..plain }
}

fn hash(model: &ModelSpec, parallelism: &Parallelism, train: &TrainSpec) -> u64 {
    let layout = Layout { model: model.clone(), parallelism: parallelism.clone(), train: train.clone() };
    let outcome = layout.outcome(&TEXT).unwrap_or_else(|error| panic!("{parallelism:?}: {error}"));
    weights_hash(model, &outcome.weights)
}

const STEP: GradientReduction = GradientReduction::Step;
const MICROBATCH: GradientReduction = GradientReduction::Microbatch;

fn three(reduce: GradientReduction) -> ZeroStage {
    ZeroStage::Three { reduce, gathering: Gathering { prefetch: 1, reshard: Reshard::AfterUse } }
}

/// Gradients of weights in descending order of microbatches.
fn descending(num_microbatches: usize) -> ScheduleSpec {
    let pass = |kind: char, number: usize| format!("0{kind}{number}");
    let forwards = (0..num_microbatches).map(|number| pass('F', number));
    let inputs = (0..num_microbatches).map(|number| pass('I', number));
    let weights = (0..num_microbatches).rev().map(|number| pass('W', number));
    let text = forwards.chain(inputs).chain(weights).collect::<Vec<_>>().join(" ");
    ScheduleSpec::Given(GivenSchedule { path: "descending.txt".into(), text })
}

/// Every way to group sequences differently, on `tp` ranks for each matrix; the first is one replica.
fn groupings(tp: usize, sequence_parallel: SequenceParallel) -> Vec<Parallelism> {
    let plain =
        |dp, pp, microbatch_size| Parallelism { sequence_parallel, ..plain_layout(dp, tp, pp, microbatch_size) };
    let sharded = |dp, zero| Parallelism { zero, ..plain(dp, 1, 1) };
    vec![
        plain(1, 1, 1),
        plain(1, 1, 2),
        plain(1, 1, 8),
        plain(2, 1, 1),
        plain(4, 1, 2),
        plain(2, 2, 2),
        sharded(4, ZeroStage::One),
        sharded(2, ZeroStage::Two { reduce: STEP }),
        sharded(2, ZeroStage::Two { reduce: MICROBATCH }),
        sharded(4, three(STEP)),
        sharded(4, three(MICROBATCH)),
        Parallelism { shard_group: Some(2), ..sharded(4, three(MICROBATCH)) },
        Parallelism { recompute: Recompute::Selective, schedule: ScheduleKind::ZeroBubbleH1.into(), ..plain(1, 2, 1) },
        Parallelism { schedule: descending(4), ..plain(1, 1, 2) },
    ]
}

fn assert_one_hash(model: &ModelSpec, groupings: &[Parallelism], train: &TrainSpec) {
    let expected = hash(model, &groupings[0], train);
    for parallelism in &groupings[1..] {
        assert_eq!(hash(model, parallelism, train), expected, "{parallelism:?}");
        let class = EqualityClass::of(&groupings[0], parallelism).in_sums([train.sums; 2]);
        assert!(class <= EqualityClass::AnyOrder, "{class}: {parallelism:?}");
    }
}

#[test]
fn grouping_sequences_differently_changes_no_bit() {
    let train = training(Precision::Fp32(Products::Chained), GradientSums::Exact);
    for style in [Style::Gpt2, Style::Llama] {
        assert_one_hash(&model(style), &groupings(1, SequenceParallel::Off), &train);
        assert_one_hash(&model(style), &groupings(2, SequenceParallel::Off), &train);
        assert_one_hash(&model(style), &groupings(2, SequenceParallel::On), &train);
    }
}

/// The batch grows from four sequences to eight: in more microbatches, or in larger ones. The unit is the same in every
/// step.
#[test]
fn batches_that_grow_in_one_way_or_the_other_have_the_same_bits() {
    let of = |grows, dp, microbatch_size| {
        let batch_ramp = Some(BatchRamp { start: 4, increment: 2, sequences: 10, grows });
        let train = TrainSpec { batch_ramp, ..training(Precision::Fp32(Products::Chained), GradientSums::Exact) };
        hash(&model(Style::Llama), &plain_layout(dp, 1, 1, microbatch_size), &train)
    };
    let (number, size) = (BatchGrowth::Microbatches, BatchGrowth::MicrobatchSize);
    let hashes = [of(number, 1, 1), of(number, 2, 1), of(size, 1, 8), of(size, 2, 4)];
    assert_eq!(BTreeSet::from(hashes).len(), 1, "{hashes:x?}");
}

/// Values in bf16 and fp16 are rounded before a sum and after an update, which no grouping changes.
#[test]
fn narrow_runs_have_the_same_bits_too() {
    let scaling = LossScaling { initial: 65536.0, window: 1, hysteresis: 1, minimum: 1.0 };
    for (style, precision) in [
        (Style::Gpt2, Precision::Fp32(Products::Pairs)),
        (Style::Gpt2, Precision::Bf16(Products::Chained)),
        (Style::Gpt2, Precision::Bf16(Products::Blocks16)),
        (Style::Llama, Precision::Fp16(Products::Chained, scaling)),
    ] {
        let groupings = groupings(1, SequenceParallel::Off);
        assert_one_hash(&model(style), &groupings, &training(precision, GradientSums::Exact));
    }
}

/// Were the sums of this text exact by themselves, the tests above would show nothing.
#[test]
fn single_sums_have_other_bits_for_each_grouping() {
    let (model, train) = (model(Style::Gpt2), training(Precision::Fp32(Products::Chained), GradientSums::Single));
    let [one, of_two, replicas, each, exact] = [
        (plain_layout(1, 1, 1, 1), &train),
        (plain_layout(1, 1, 1, 2), &train),
        (plain_layout(2, 1, 1, 1), &train),
        (Parallelism { zero: ZeroStage::Two { reduce: MICROBATCH }, ..plain_layout(2, 1, 1, 1) }, &train),
        (plain_layout(1, 1, 1, 1), &training(Precision::Fp32(Products::Chained), GradientSums::Exact)),
    ]
    .map(|(parallelism, train)| hash(&model, &parallelism, train));
    assert_eq!(BTreeSet::from([one, of_two, replicas, each, exact]).len(), 5, "two groupings have the same bits");
}

/// Ranks that shard 6 tokens of two sequences hold 3 each, of four sequences one sequence each.
#[test]
fn tokens_that_are_shared_out_unevenly_make_the_same_terms() {
    let train = TrainSpec { sequence_length: 6, ..training(Precision::Fp32(Products::Chained), GradientSums::Exact) };
    let shared = |dp, microbatch_size| Parallelism {
        sequence_parallel: SequenceParallel::On,
        ..plain_layout(dp, 4, 1, microbatch_size)
    };
    for style in [Style::Gpt2, Style::Llama] {
        assert_one_hash(&model(style), &[shared(1, 2), shared(2, 2), shared(1, 4), shared(1, 8)], &train);
    }
}

/// A term of the gradient is finite, but beyond the range of exact sums: in step 2, on the rank at `place` (dp, tp, pp)
/// and on no other.
fn too_large(layout: &Layout, place: (usize, usize, usize)) -> Result<Outcome, ProofError> {
    let wrap = |coord: Coord, rank: RankEngine| {
        let here = (coord.position(AxisSet::DATA), coord.along(Axis::Tp), coord.along(Axis::Pp)) == place;
        let (step, is_done) = (Cell::new(1), Cell::new(false));
        intercept_ops(rank, move |device, stream, op| {
            if let Op::AddRounded { x, rounding, .. } = op
                && here
                && step.get() == 2
                && !is_done.replace(true)
            {
                device.write(x.elements(0..1), bytemuck::bytes_of(&-rounding.limit))?;
            }
            if let Op::ClipCoefficient { .. } = op {
                step.set(step.get() + 1);
            }
            device.submit(stream, op)
        })
    };
    let setup = layout.setup()?;
    outcome_watched(&setup, &WrappedEngine::new(&setup, &wrap), &TEXT, None, &NoWatch)
}

/// The last rank along each axis, in every form in which gradients are summed.
fn places() -> Vec<((usize, usize, usize), ZeroStage)> {
    let (two, three) = (ZeroStage::Two { reduce: MICROBATCH }, three(STEP));
    vec![
        ((0, 0, 0), ZeroStage::Off),
        ((1, 0, 0), ZeroStage::One),
        ((0, 1, 0), ZeroStage::Off),
        ((0, 0, 1), ZeroStage::Off),
        ((1, 0, 1), two),
        ((1, 1, 0), three),
    ]
}

#[test]
fn a_term_beyond_the_range_ends_a_single_run_on_all_ranks() {
    for ((dp, tp, pp), zero) in places() {
        let parallelism = Parallelism { zero, ..plain_layout(dp + 1, tp + 1, pp + 1, 1) };
        let train = training(Precision::Fp32(Products::Chained), GradientSums::Exact);
        let layout = Layout { model: model(Style::Llama), parallelism, train };
        let error = too_large(&layout, (dp, tp, pp)).unwrap_err();
        let is_found = matches!(error, ProofError::Train(TrainError::NotFinite { step: 2, .. }));
        assert!(is_found, "dp {dp} tp {tp} pp {pp}: {error}");
        assert!(error.to_string().contains("a gradient of 2048 or more does not fit"), "{error}");
    }
}

#[test]
fn a_term_beyond_the_range_is_an_overflow_of_an_fp16_run() {
    let scaling = LossScaling { initial: 4096.0, window: 100, hysteresis: 1, minimum: 1.0 };
    let train = training(Precision::Fp16(Products::Chained, scaling), GradientSums::Exact);
    for ((dp, tp, pp), zero) in places() {
        let parallelism = Parallelism { zero, ..plain_layout(dp + 1, tp + 1, pp + 1, 1) };
        let layout = Layout { model: model(Style::Llama), parallelism, train: train.clone() };
        let outcome = too_large(&layout, (dp, tp, pp)).unwrap();
        let updates: Vec<UpdateOutcome> = outcome.scaling.iter().flatten().map(|scaling| scaling.update).collect();
        assert_eq!(
            updates,
            [UpdateOutcome::Updated, UpdateOutcome::Skipped, UpdateOutcome::Updated],
            "dp {dp} tp {tp} pp {pp}"
        );
    }
}
