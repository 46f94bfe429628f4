//! N31: the factor of an fp16 run's loss leaves norms and updates as they are, and a step that overflows on one rank is
//! skipped on all.

use std::cell::Cell;

use config::{LossScaling, Precision, Products, TrainSpec};
use device::{Device, DeviceError, Op, Tensor};
use mesh::Axis;
use prove::Distance;
use testkit::intercepted::{alter_ops, intercept_ops};
use testkit::models::Style;
use testkit::replicas::Replicas;
use testkit::wrapped_engine::WrapRank;
use train::{RankEngine, UpdateOutcome};

use crate::checklist::rig::*;

const SCALING: LossScaling = LossScaling { initial: 8192.0, window: 100, hysteresis: 1, minimum: 1.0 };
const FP16: Precision = Precision::Fp16(Products::Chained, SCALING);

/// Relative distance of an fp16 run from one in single precision: 60 unit roundoffs, a hundredth of what a factor of 2
/// does.
const NEAR: f64 = 0.03;

/// Whether an fp16 run has the norms and weights of one in single precision. With a large epsilon updates are in
/// proportion to gradients, so that AdamW does not hide a factor.
fn as_in_single_precision(wrap: &WrapRank<'_>) -> Verdict {
    let model = still_model(Style::Gpt2, true);
    let train = TrainSpec { epsilon: 1.0, learning_rate: 0.5, min_learning_rate: 0.5, clip_norm: None, ..training(3) };
    let single = Case::new(&model, degrees((1, 1, 1)), &train).outcome()?;
    let train = TrainSpec { precision: FP16, ..train };
    let scaled = Case::new(&model, degrees((1, 1, 1)), &train).wrapped(wrap).outcome()?;
    let Distance { loss, norm, weight, .. } = Distance::between(&single, &scaled, |name| has_no_gradient(&model, name));
    let compared =
        [("a loss".to_string(), loss), ("a norm".to_string(), norm), (format!("weight {}", weight.1), weight.0)];
    let far = compared.into_iter().filter(|(_, distance)| *distance > NEAR);
    verdict(far.map(|(what, distance)| format!("{what} is {distance:.1e} away, at most {NEAR}")))
}

#[test]
fn norms_and_updates_are_unscaled() {
    assert_holds(as_in_single_precision(&untouched));
    let scaled_norm = |_, rank| {
        alter_ops(rank, |op| {
            if let Op::SquaredSum { loss_scale, .. } = op {
                *loss_scale = 1.0;
            }
        })
    };
    assert_found(as_in_single_precision(&scaled_norm), "a norm is");
    let scaled_update = |_, rank| {
        alter_ops(rank, |op| {
            if let Op::ClipCoefficient { loss_scale, .. } = op {
                *loss_scale = 1.0;
            }
        })
    };
    assert_found(as_in_single_precision(&scaled_update), "weight ");
}

/// A gradient overflows on one rank in step 2, as the norm is taken.
fn overflow(device: &dyn Device, x: Tensor) -> Result<(), DeviceError> {
    device.write(x.elements(0..1), bytemuck::bytes_of(&f32::INFINITY))
}

/// Whether the first rank hears that another one overflowed.
#[derive(Clone, Copy, PartialEq)]
enum First {
    Hears,
    IsDeaf,
}

/// Whether all ranks skip the second step, in which the last one overflowed, halve the factor, and hold the same
/// afterwards.
fn skips_together(at: (usize, usize, usize), first: First) -> Verdict {
    let model = still_model(Style::Gpt2, true);
    let train = TrainSpec { precision: FP16, ..training(3) };
    let wrap = move |coord: mesh::Coord, rank: RankEngine| {
        let step = Cell::new(0);
        let place = (replica(coord), coord.along(Axis::Tp), coord.along(Axis::Pp));
        let (is_first, is_last) = (place == (0, 0, 0), place == (at.0 - 1, at.1 - 1, at.2 - 1));
        intercept_ops(rank, move |device, stream, op| {
            if let (Op::SquaredSum { x, .. }, 1, true) = (op, step.get(), is_last) {
                overflow(device, *x)?;
            }
            device.submit(stream, op)?;
            if let Op::ClipCoefficient { out, .. } = op {
                if first == First::IsDeaf && is_first && step.get() == 1 {
                    device.write(*out, bytemuck::cast_slice(&[1e-4f32, 1.0, 5.0, 0.0]))?;
                }
                step.set(step.get() + 1);
            }
            Ok(())
        })
    };
    let replicas = Replicas::every(3);
    let parallelism = config::Parallelism { zero: config::ZeroStage::Off, ..degrees(at) };
    let outcome = Case::new(&model, parallelism, &train).wrapped(&wrap).watched(&replicas).outcome()?;
    let steps: Vec<_> = outcome.scaling.iter().flatten().map(|step| (step.update, step.factor)).collect();
    let expected =
        [(UpdateOutcome::Updated, 8192.0), (UpdateOutcome::Skipped, 8192.0), (UpdateOutcome::Updated, 4096.0)];
    let otherwise = (steps != expected).then(|| format!("the fates of steps are {steps:?}"));
    verdict(replicas_agree(&replicas).err().into_iter().chain(otherwise))
}

#[test]
fn a_step_is_skipped_by_all_or_by_none() {
    for at in [(2, 1, 1), (1, 2, 1), (1, 1, 2), (2, 2, 2)] {
        assert_holds(skips_together(at, First::Hears));
        let found = skips_together(at, First::IsDeaf);
        // The first rank reports.
        assert_found(found.clone(), "the fates of steps are");
        assert_found(found, "master weights of ");
    }
}
