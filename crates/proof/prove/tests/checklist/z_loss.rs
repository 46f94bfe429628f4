//! The z-loss over a sharded vocabulary is that of one rank: its own figure, and its share in gradients and weights.

use std::sync::Mutex;

use config::{Degrees, FullRecompute, ModelSpec, Parallelism, Recompute, SavedInputs};
use device::Op;
use testkit::intercepted::alter_ops;
use testkit::models::Style;
use testkit::wrapped_engine::WrappedEngine;
use train::{Observer, Ports, RankEngine, StepReport, StopRequest};

use crate::checklist::rig::*;

/// Keeps the z-losses of all steps.
#[derive(Default)]
struct ZLosses(Mutex<Vec<Option<f64>>>);

impl Observer for ZLosses {
    fn step(&self, report: &StepReport) -> StopRequest {
        self.0.lock().expect("the only thread that reports").push(report.z_loss);
        StopRequest::None
    }
}

fn z_losses(case: &Case<'_>) -> Vec<Option<f64>> {
    let (setup, log) = (case.setup(), ZLosses::default());
    train::run(&setup, &WrappedEngine::new(&setup, case.wrap), Ports::new(case.tokens, &log)).expect("a run");
    log.0.into_inner().expect("nobody panicked")
}

/// A coefficient with which the z-loss is a tenth of the loss.
fn model(z_loss: Option<f32>) -> ModelSpec {
    ModelSpec { z_loss, ..small_model(Style::Llama, true) }
}

const COEFFICIENT: f32 = 0.02;

fn case<'a>(parallelism: Parallelism) -> Case<'a> {
    Case::new(&model(Some(COEFFICIENT)), parallelism, &training(3)).tokens(&RAGGED)
}

#[test]
fn layouts_learn_what_one_rank_learns() {
    let one = case(degrees((1, 1, 1)));
    let (outcome, figures) = (one.outcome().expect("one rank"), z_losses(&one));
    let plain = Case::new(&model(None), degrees((1, 1, 1)), &training(3)).tokens(&RAGGED);
    assert_eq!(z_losses(&plain), [None; 3]);
    assert_found(within_bounds(&model(None), &outcome, &plain.outcome().expect("one rank")), "the gradient of");
    let plain = degrees((1, 1, 1));
    let shared = Parallelism { degrees: Degrees { cp: 2, ..plain.degrees }, ..plain };
    for layout in [degrees((1, 3, 1)), degrees((2, 2, 2)), Parallelism { zero: THREE, ..degrees((2, 2, 1)) }, shared] {
        let other = case(layout.clone());
        assert_holds(within_bounds(&model(None), &outcome, &other.outcome().expect("runs")));
        for (one, other) in figures.iter().zip(z_losses(&other)) {
            let (one, other) = (one.expect("a z-loss"), other.expect("a z-loss"));
            assert!(one > 0.0 && (other / one - 1.0).abs() <= LOSS_BOUND, "{layout:?}: {other} instead of {one}");
        }
    }
}

/// Stages, recomputation and sharded state keep the order of all sums.
#[test]
fn layouts_of_the_same_order_have_the_same_bits() {
    let full = Recompute::Full(FullRecompute { every: 1, inputs: SavedInputs::Whole });
    let one = case(degrees((1, 2, 1)));
    let staged = case(Parallelism { recompute: full, ..degrees((1, 2, 2)) });
    assert_holds(same_bits(&one.outcome().expect("runs"), &staged.outcome().expect("runs")));
    assert_eq!(z_losses(&one), z_losses(&staged));
    let whole = case(degrees((2, 1, 1)));
    let sharded = case(Parallelism { zero: THREE, ..degrees((2, 1, 2)) });
    assert_holds(same_bits(&whole.outcome().expect("runs"), &sharded.outcome().expect("runs")));
    assert_eq!(z_losses(&whole), z_losses(&sharded));
}

#[test]
fn a_rank_without_the_z_loss_is_found() {
    let forgets = |coord: mesh::Coord, rank: RankEngine| {
        alter_ops(rank, move |op| {
            if let Op::CrossEntropy { z_loss: Some(z_loss), .. } = op
                && coord.position(mesh::AxisSet::of(mesh::Axis::Tp)) == 1
            {
                z_loss.coefficient = 0.0;
            }
        })
    };
    let one = case(degrees((1, 1, 1))).outcome().expect("one rank");
    let other = case(degrees((1, 2, 1))).wrapped(&forgets).outcome().expect("runs");
    assert_found(within_bounds(&model(None), &one, &other), "the gradient of");
}
