//! N33: counters of the optimizer, learning rate, loss scale and place in the data continue where they were, in the
//! same layout and in another.

use std::cell::Cell;

use checkpoint::{LossScaleState, Manifest};
use config::{Format, LossScaling, Precision, Products, TrainSpec, ZeroStage};
use device::{AdamWUpdate, Op};
use testkit::intercepted::alter_ops;
use train::{RankEngine, TokenSource};

use crate::checklist::findings::{assert_found, assert_holds};
use crate::resume::pairs::{Pair, THREE, learns_something_else, pairs, zero};
use crate::resume::resumption::{Resumption, training_in};
use crate::resume::text::{Late, shuffled, shuffled_with};

/// Steps before the resumption, of four.
const CUT: u32 = 2;

/// Each update after the resumption is changed; it knows the step, counted from 0.
fn updates(
    train: &TrainSpec,
    alter: fn(&TrainSpec, u32, &mut AdamWUpdate),
) -> impl Fn(mesh::Coord, RankEngine) -> RankEngine {
    let train = train.clone();
    move |_, rank| {
        let (train, step) = (train.clone(), Cell::new(CUT));
        alter_ops(rank, move |op| {
            // One per step, before all updates.
            if let Op::ClipCoefficient { .. } = op {
                step.set(step.get() + 1);
            }
            if let Op::AdamW { update, .. } = op {
                alter(&train, step.get() - 1, update);
            }
        })
    }
}

#[test]
fn counters_and_rates_that_restart_or_are_one_off_are_found() {
    let faults: [fn(&TrainSpec, u32, &mut AdamWUpdate); 5] = [
        |_, _, update| update.update -= CUT,
        |_, _, update| update.update += 1,
        |train, step, update| update.learning_rate = train.learning_rate_at(step - CUT),
        |train, step, update| update.learning_rate = train.learning_rate_at(step + 1),
        |train, step, update| update.learning_rate = train.learning_rate_at(step - 1),
    ];
    for pair in &pairs() {
        let train = &pair.after.train;
        let unaltered = |train: &TrainSpec, step: u32, update: &mut AdamWUpdate| {
            assert_eq!((update.learning_rate, update.update), (train.learning_rate_at(step), step + 1));
        };
        assert_holds(Resumption::new(pair, CUT).resumed_on(&updates(train, unaltered)).continues());
        for fault in faults {
            let found = Resumption::new(pair, CUT).resumed_on(&updates(train, fault)).continues();
            assert_found(found, learns_something_else(pair));
        }
    }
}

#[test]
fn text_that_is_read_from_another_place_is_found() {
    let late = |steps| move |train: &TrainSpec| Box::new(Late { text: shuffled(train), steps }) as Box<dyn TokenSource>;
    let of_another_seed = |train: &TrainSpec| shuffled_with(train.seed + 1, train);
    let of_sequences = |change: fn(u64) -> u64| {
        move |manifest: &mut Manifest| {
            manifest.state.sequences = change(manifest.state.sequences);
        }
    };
    for pair in &pairs() {
        let read =
            |text: &dyn Fn(&TrainSpec) -> Box<dyn TokenSource>| Resumption::new(pair, CUT).reading(text).continues();
        assert_holds(read(&late(0)));
        let from_the_beginning = late(-(CUT as i32));
        for text in [&from_the_beginning, &late(-1), &late(1)] {
            assert_found(read(text), learns_something_else(pair));
        }
        assert_found(read(&of_another_seed), learns_something_else(pair));
        let placed = |change| Resumption::new(pair, CUT).with_fault(&of_sequences(change)).continues();
        assert_holds(placed(|sequences| sequences));
        let wrong: [fn(u64) -> u64; 3] = [|_| 0, |sequences| sequences + 1, |sequences| sequences - 1];
        for change in wrong {
            assert_found(placed(change), learns_something_else(pair));
        }
    }
}

/// An fp16 run whose factor overflows, is tolerated once, halves, and grows again; the same layout, and two others with
/// the same sums.
fn scaled() -> Vec<Pair> {
    let scaling = LossScaling { initial: 2_097_152.0, window: 2, hysteresis: 2, minimum: 1.0 };
    let train =
        TrainSpec { steps: STEPS, precision: Precision::Fp16(Products::Chained, scaling), ..training_in(Format::Fp16) };
    let pair = |before, after| Pair::new(before, after).trained(|_| train.clone());
    vec![
        pair(zero(ZeroStage::One, 2, 1, 2), zero(ZeroStage::One, 2, 1, 2)),
        pair(zero(ZeroStage::Off, 2, 1, 1), zero(THREE, 2, 1, 2)),
    ]
}

/// Steps of the run that is scaled.
const STEPS: u32 = 10;

/// Faults of a saved loss scale and of the count of skipped steps.
type OfScale = fn(&mut LossScaleState, &mut u32);

#[test]
fn loss_scales_and_skipped_steps_that_do_not_continue_are_found() {
    for pair in &scaled() {
        for cut in 1..STEPS {
            assert_holds(Resumption::new(pair, cut).continues());
        }
        let outcome = pair.undisturbed().expect("a run");
        let scaling: Vec<_> = outcome.scaling.iter().flatten().collect();
        let skipped = scaling.iter().filter(|step| step.update == train::UpdateOutcome::Skipped).count() as u32;
        assert!((2..STEPS - 3).contains(&skipped), "{scaling:?}");
        let faults: [(u32, OfScale); 6] = [
            // After the first overflow, which is tolerated, the next one halves the factor.
            (1, |scale, _| scale.tolerated = 1 - scale.tolerated),
            (2, |scale, _| scale.factor *= 2.0),
            (2, |scale, _| scale.factor *= 0.5),
            // After the first step that updates, the next one doubles the factor.
            (skipped + 1, |scale, _| scale.finite_steps = 1 - scale.finite_steps),
            (skipped + 1, |_, skipped| *skipped -= 1),
            (skipped + 1, |_, skipped| *skipped += 1),
        ];
        for (cut, fault) in faults {
            let inject = |manifest: &mut Manifest| {
                let state = &mut manifest.state;
                fault(state.loss_scale.as_mut().expect("a loss scale"), &mut state.skipped_steps);
            };
            assert_found(Resumption::new(pair, cut).with_fault(&inject).continues(), "the bits differ");
        }
        let restarted = |manifest: &mut Manifest| manifest.state.loss_scale = None;
        assert_found(Resumption::new(pair, skipped + 1).with_fault(&restarted).continues(), "the bits differ");
    }
}
