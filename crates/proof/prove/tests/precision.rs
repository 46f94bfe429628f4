//! bf16 and fp16, and products in AMX order, under every kind of layout: a change that keeps the bits in single
//! precision keeps them here, other layouts stay within bounds written with the type's unit roundoff, and an overflow
//! anywhere is one everywhere.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::Cell;

use config::{
    Gathering, GradientReduction, LossScaling, ModelSpec, Parallelism, Precision, Products, Recompute, Reshard,
    ScheduleKind, ScheduleSpec, TrainSpec, ZeroStage,
};
use device::Op;
use mesh::{Axis, AxisSet, Coord};
use prove::{Distance, EqualityClass, NoWatch, Outcome, Promise, Promised, outcome_watched};
use testkit::intercepted::intercept_ops;
use testkit::layout::Layout;
use testkit::models::{Style, plain_layout, proof_model, proof_text, proof_training};
use testkit::wrapped_engine::WrappedEngine;
use train::{RankEngine, SequenceBuffers, TokenSource, UpdateOutcome};

/// A window so short that the factor of the loss grows within a test.
const SCALING: LossScaling = LossScaling { initial: 16384.0, window: 2, hysteresis: 1, minimum: 1.0 };
/// One unit ahead, freed after each use.
const GATHERING: Gathering = Gathering { prefetch: 1, reshard: Reshard::AfterUse };
const NUMBERS: [Precision; 7] = [
    Precision::Fp32(Products::Pairs),
    Precision::Bf16(Products::Chained),
    Precision::Bf16(Products::Pairs),
    Precision::Bf16(Products::Blocks16),
    Precision::Bf16(Products::Blocks8),
    Precision::Fp16(Products::Chained, SCALING),
    Precision::Fp16(Products::Blocks16, SCALING),
];

fn model(style: Style) -> ModelSpec {
    ModelSpec { num_layers: 3, ..proof_model(style, 12, style == Style::Gpt2) }
}

fn training(precision: Precision) -> TrainSpec {
    TrainSpec { steps: 5, global_batch: 8, warmup_steps: 1, precision, ..proof_training() }
}

fn layout(style: Style, precision: Precision, parallelism: Parallelism) -> Layout {
    Layout { model: model(style), parallelism, train: training(precision) }
}

fn outcome(layout: &Layout) -> Outcome {
    layout.outcome(&proof_text()).unwrap_or_else(|error| panic!("{:?}: {error}", layout.parallelism))
}

/// Two runs that must be the same bits.
fn assert_same_bits(what: &str, a: &Outcome, b: &Outcome) {
    let distance = Distance::between(a, b, |_| false);
    assert!(distance.same_bits, "{what}: {distance:?}");
}

/// Two runs that must have skipped the same steps and be within the bounds of their class.
fn assert_near(what: &str, layout: &Layout, of: &Parallelism, (oracle, other): (&Outcome, &Outcome)) {
    let class = EqualityClass::of(of, &layout.parallelism);
    let promise = Promise::of(class, &layout.model, &layout.train, layout.train.steps);
    let distances = promise.distances([oracle, other]);
    println!("{what}: the nearest is at {:.0} % of its bound", 100.0 * distances.nearest());
    assert_eq!(oracle.scaling, other.scaling, "{what}: skipped steps and factors");
    assert_eq!(distances.exceeded(), [""; 0], "{what}");
}

#[test]
fn what_keeps_the_order_of_sums_changes_no_bit() {
    for (style, precision) in [Style::Gpt2, Style::Llama].into_iter().flat_map(|style| NUMBERS.map(|p| (style, p))) {
        for (dp, tp) in [(1, 1), (2, 2)] {
            let reference = outcome(&layout(style, precision, plain_layout(dp, tp, 1, 2)));
            let plain = |pp| plain_layout(dp, tp, pp, 2);
            for parallelism in [
                plain(2),
                Parallelism { schedule: ScheduleSpec::Generated(ScheduleKind::GPipe), ..plain(3) },
                Parallelism { recompute: Recompute::FULL, ..plain(2) },
                Parallelism { zero: ZeroStage::One, ..plain(1) },
                Parallelism { zero: ZeroStage::One, recompute: Recompute::FULL, ..plain(2) },
                Parallelism { zero: ZeroStage::Two { reduce: GradientReduction::Step }, ..plain(1) },
                Parallelism {
                    zero: ZeroStage::Three { reduce: GradientReduction::Step, gathering: GATHERING },
                    ..plain(2)
                },
            ] {
                let what = format!("{style} {precision:?} {parallelism:?}");
                assert_same_bits(&what, &reference, &outcome(&layout(style, precision, parallelism)));
            }
        }
    }
}

#[test]
fn other_orders_and_other_sums_stay_within_their_bounds() {
    for (style, precision) in [Style::Gpt2, Style::Llama].into_iter().flat_map(|style| NUMBERS.map(|p| (style, p))) {
        let one = plain_layout(1, 1, 1, 1);
        let oracle = outcome(&layout(style, precision, one.clone()));
        assert!(oracle.losses.last() < oracle.losses.first(), "{:?}", oracle.losses);
        for (dp, tp, pp, microbatch_size) in
            [(2, 1, 1, 1), (4, 1, 1, 2), (1, 1, 1, 4), (1, 2, 1, 1), (1, 3, 1, 1), (1, 4, 1, 2), (2, 2, 2, 1)]
        {
            let zero = if dp > 1 { ZeroStage::One } else { ZeroStage::Off };
            let other = Parallelism { zero, ..plain_layout(dp, tp, pp, microbatch_size) };
            let what = format!("{style} {:?} dp {dp} tp {tp} pp {pp} microbatch {microbatch_size}", precision.stored());
            let layout = layout(style, precision, other);
            assert_near(&what, &layout, &one, (&oracle, &outcome(&layout)));
        }
    }
}

/// A rank on which, in the given steps, a gradient overflows as the norm is taken.
fn overflowing(rank: RankEngine, steps: &'static [u32]) -> RankEngine {
    let (step, done) = (Cell::new(0), Cell::new(false));
    intercept_ops(rank, move |device, stream, op| {
        if let Op::SquaredSum { x, .. } = op
            && steps.contains(&step.get())
            && !done.replace(true)
        {
            device.write(x.elements(0..1), bytemuck::bytes_of(&f32::INFINITY))?;
        }
        if let Op::ClipCoefficient { .. } = op {
            step.set(step.get() + 1);
            done.set(false);
        }
        device.submit(stream, op)
    })
}

/// The run with an overflow in `steps` on the rank at `place` (dp, tp, pp), on no other.
fn outcome_overflowing(layout: &Layout, place: (usize, usize, usize), steps: &'static [u32]) -> Outcome {
    let wrap = |coord: Coord, rank: RankEngine| {
        let here = (coord.position(AxisSet::DATA), coord.along(Axis::Tp), coord.along(Axis::Pp));
        if here == place { overflowing(rank, steps) } else { rank }
    };
    let setup = layout.setup().unwrap();
    let engine = WrappedEngine::new(&setup, &wrap);
    outcome_watched(&setup, &engine, &proof_text(), None, &NoWatch).unwrap()
}

#[test]
fn an_overflow_on_one_rank_is_one_everywhere() {
    const STEPS: &[u32] = &[1, 3];
    let precision = Precision::Fp16(Products::Chained, SCALING);
    let one = plain_layout(1, 1, 1, 1);
    let at = |parallelism| layout(Style::Gpt2, precision, parallelism);
    let oracle = outcome_overflowing(&at(one.clone()), (0, 0, 0), STEPS);
    let updates: Vec<UpdateOutcome> = oracle.scaling.iter().flatten().map(|scaling| scaling.update).collect();
    let (updated, skipped) = (UpdateOutcome::Updated, UpdateOutcome::Skipped);
    assert_eq!(updates, [updated, skipped, updated, skipped, updated]);
    let factors: Vec<f32> = oracle.scaling.iter().flatten().map(|scaling| scaling.factor).collect();
    assert_eq!(factors, [16384.0, 16384.0, 8192.0, 8192.0, 4096.0]);
    // The last rank along each axis, all of them, and with the optimizer sharded.
    for place in [(0, 0, 1), (0, 0, 2), (1, 0, 0), (0, 1, 0), (1, 1, 1)] {
        let parallelism = plain_layout(place.0 + 1, place.1 + 1, place.2 + 1, 1);
        for zero in [ZeroStage::Off, ZeroStage::One] {
            let layout = at(Parallelism { zero, ..parallelism.clone() });
            let other = outcome_overflowing(&layout, place, STEPS);
            let what = format!("overflow at {place:?}, {zero:?}");
            match EqualityClass::of(&one, &layout.parallelism).promises() {
                Promised::Bits => assert_same_bits(&what, &oracle, &other),
                Promised::Bounds => assert_near(&what, &layout, &one, (&oracle, &other)),
                Promised::Nothing => unreachable!("one engine runs both"),
            }
        }
    }
}

/// The factor starts so high that fp16 itself overflows.
#[test]
fn every_layout_finds_the_same_factor() {
    let precision = Precision::Fp16(Products::Chained, LossScaling { initial: LossScaling::LARGEST, ..SCALING });
    let one = plain_layout(1, 1, 1, 1);
    let train = TrainSpec { steps: 24, ..training(precision) };
    let at = |parallelism| Layout { model: model(Style::Llama), parallelism, train: train.clone() };
    let oracle = outcome(&at(one.clone()));
    let skipped = oracle.scaling.iter().flatten().filter(|scaling| scaling.update == UpdateOutcome::Skipped).count();
    println!("{skipped} of 24 steps skipped, losses {:?}", oracle.losses);
    assert!((2..20).contains(&skipped) && oracle.losses.last() < oracle.losses.first(), "{skipped} skipped");
    assert_same_bits("pp 3", &oracle, &outcome(&at(plain_layout(1, 1, 3, 1))));
    let layout = at(Parallelism { zero: ZeroStage::One, ..plain_layout(2, 1, 2, 1) });
    assert_eq!(oracle.scaling, outcome(&layout).scaling);
}

/// The tokens of step 0 in every step.
struct Same;

impl TokenSource for Same {
    fn fill(&self, _step: u32, sequence: u64, buffers: SequenceBuffers<'_>) {
        proof_text().fill(0, sequence, buffers);
    }
}

/// A step that is skipped leaves weights, moments and AdamW's count: what follows is as if it had not been.
#[test]
fn a_skipped_step_leaves_no_trace() {
    let precision = Precision::Fp16(Products::Chained, LossScaling { hysteresis: 9, window: 99, ..SCALING });
    let still = ModelSpec { dropout: 0.0, attention_dropout: 0.0, ..model(Style::Gpt2) };
    let run = |steps, skipped: &'static [u32]| {
        let schedule = config::LearningRateSchedule::Constant;
        let train = TrainSpec { steps, warmup_steps: 0, schedule, ..training(precision) };
        let layout = Layout { model: still.clone(), parallelism: plain_layout(1, 1, 1, 2), train };
        let setup = layout.setup().unwrap();
        let wrap = |_: Coord, rank: RankEngine| overflowing(rank, skipped);
        let engine = WrappedEngine::new(&setup, &wrap);
        outcome_watched(&setup, &engine, &Same, None, &NoWatch).unwrap()
    };
    assert!(run(2, &[]).weights == run(4, &[0, 2]).weights, "two updates among four steps");
    assert!(run(1, &[0]).weights == run(2, &[0, 1]).weights, "no update at all");
    assert!(run(1, &[0]).weights != run(1, &[]).weights);
}

/// Overflows without end: the run ends with the remedy.
#[test]
fn a_run_that_overflows_at_the_least_factor_ends() {
    const ALWAYS: &[u32] = &[0, 1, 2, 3, 4];
    let precision = Precision::Fp16(Products::Chained, LossScaling { initial: 4.0, minimum: 2.0, ..SCALING });
    let layout = layout(Style::Gpt2, precision, plain_layout(1, 1, 1, 2));
    let setup = layout.setup().unwrap();
    let wrap = |_: Coord, rank: RankEngine| overflowing(rank, ALWAYS);
    let engine = WrappedEngine::new(&setup, &wrap);
    let error = outcome_watched(&setup, &engine, &proof_text(), None, &NoWatch).unwrap_err().to_string();
    let expected = "step 2: fp16 overflows at the least loss scale, 2, after 1 skipped steps";
    assert!(error.starts_with(expected) && error.contains("train.precision = \"bf16\""), "{error}");
}
