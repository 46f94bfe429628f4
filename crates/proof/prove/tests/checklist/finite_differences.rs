//! N36: the gradients of one rank, against which all layouts are held, are the derivatives of its own loss.
//!
//! For each parameter tensor and random signs `s`, the loss is taken at weights `w + e s` and `w - e s`. Half of its
//! difference over `e` is the derivative along `s`, which the gradient gives as `sum(s g)`, a number of the size of the
//! tensor's gradient norm `|g|`. Three errors are allowed for:
//! * rounding of the loss. Each token's loss is near 4 and computed in single precision through some twenty operations,
//!   so a few times 2^-22; over 64 tokens, whose errors are independent, that is about 1e-7, and [`LOSS_NOISE`] is four
//!   times as much. It enters as `noise / e`;
//! * the third derivative, `e^2 / 6` of it along `s`: steps are small next to the weights (standard deviation 0.08),
//!   and one percent of `|g|` is allowed;
//! * rounding of the gradient, 1e-6, which is negligible next to these.
//!
//! A wrong gradient is not one percent off along random signs, but of the order of one.

use std::collections::BTreeMap;
use std::sync::Mutex;

use config::{Activation, ModelSpec};
use device::{COUNT_WORD, DeviceError, Direction, Op, SUM_WORDS};
use philox::philox4x32_10;
use program::Instr;
use prove::{Outcome, Tensors, Watch};
use testkit::intercepted::{alter_ops, drop_ops};
use testkit::models::Style;
use testkit::wrapped_engine::WrapRank;
use train::{RankEngine, TensorMap, Worker};

use crate::checklist::rig::*;

/// Error of a loss of 64 tokens.
const LOSS_NOISE: f64 = 4e-7;
/// Share of a tensor's gradient norm by which a derivative may differ, rounding of the loss apart.
const CURVATURE: f64 = 1e-2;
/// Difference of the loss that a step aims at: a thousand times its noise, a ten-thousandth of the loss.
const AIM: f64 = 4e-4;

/// The loss before it is rounded to single precision.
#[derive(Default)]
struct ExactLoss(Mutex<f64>);

impl Watch for ExactLoss {
    fn instruction(&self, worker: &Worker<'_>) -> Result<(), DeviceError> {
        if worker.position.program.instrs[worker.position.at] != Instr::GradNorm {
            return Ok(());
        }
        let mut words = [0i64; SUM_WORDS];
        worker.ports.device.read(worker.state.constants.loss_sums, bytemuck::cast_slice_mut(&mut words))?;
        // Four limbs of 32 bits in units of 2^-80, then a count of what is not finite, then the valid tokens.
        let sum: f64 = (0..4).map(|limb| words[limb] as f64 * 2f64.powi(32 * limb as i32 - 80)).sum();
        *self.0.lock().expect("nobody panics with it") = sum / words[COUNT_WORD] as f64;
        Ok(())
    }
}

/// A model whose weights can be moved.
struct Oracle<'a> {
    model: &'a ModelSpec,
    wrap: &'a WrapRank<'a>,
    weights: Tensors,
    shapes: BTreeMap<String, Vec<usize>>,
}

impl Oracle<'_> {
    fn new<'a>(model: &'a ModelSpec, wrap: &'a WrapRank<'a>) -> Oracle<'a> {
        let drawn = Case::new(model, degrees((1, 1, 1)), &training(0)).outcome().expect("a start");
        let units = std::iter::once(config::Unit::Table).chain(config::Unit::computing(model.num_layers));
        let shapes = units.flat_map(|unit| config::params(model, unit)).map(|param| (param.name, param.shape));
        Oracle { model, wrap, weights: drawn.weights, shapes: shapes.collect() }
    }

    /// Loss and gradients with `moved` in the place of one tensor.
    fn at(&self, name: &str, moved: &[f32]) -> (f64, Outcome) {
        let mut initial = TensorMap::default();
        for (other, values) in &self.weights {
            let values = if other == name { moved.to_vec() } else { values.clone() };
            initial.insert(other, &self.shapes[other], values);
        }
        let loss = ExactLoss::default();
        let case = Case::new(self.model, degrees((1, 1, 1)), &training(1)).initial(&initial).wrapped(self.wrap);
        let outcome = case.watched(&loss).outcome().expect("a step");
        (loss.0.into_inner().expect("nobody panicked"), outcome)
    }

    /// How far the derivative of the loss along signs number `draw` is from what `gradient` says, and how far it may
    /// be.
    fn error(&self, name: &str, gradient: &[f32], draw: u32) -> (f64, f64) {
        let weights = &self.weights[name];
        let signs: Vec<f32> = (0..weights.len() as u32)
            .map(|index| if philox4x32_10([index, draw, 0, 0], [36, 0])[0] & 1 == 0 { 1.0 } else { -1.0 })
            .collect();
        let size = gradient.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>().sqrt();
        let step = (AIM / (2.0 * size)).clamp(5e-5, 1e-2) as f32;
        let moved = |step: f32| -> Vec<f32> { weights.iter().zip(&signs).map(|(w, s)| w + step * s).collect() };
        let (above, below) = (moved(step), moved(-step));
        let difference = self.at(name, &above).0 - self.at(name, &below).0;
        // The effective step is the one that is left after rounding.
        let along = |index: usize| f64::from(above[index]) - f64::from(below[index]);
        let expected: f64 = gradient.iter().enumerate().map(|(index, g)| f64::from(*g) * along(index)).sum();
        let per_step = 2.0 * f64::from(step);
        ((difference - expected).abs() / per_step, CURVATURE * size + 2.0 * LOSS_NOISE / per_step)
    }
}

/// The tensors whose gradient is not the derivative of the loss.
fn check(model: &ModelSpec, wrap: &WrapRank<'_>) -> Verdict {
    let oracle = Oracle::new(model, wrap);
    let (_, outcome) = oracle.at("", &[]);
    let mut findings = vec![];
    for (name, gradient) in &outcome.gradients {
        for draw in 0..2 {
            let (error, allowed) = oracle.error(name, gradient, draw);
            if error > allowed || error.is_nan() {
                findings.push(format!("{name}: derivative off by {error:.1e}, at most {allowed:.1e}"));
                break;
            }
        }
    }
    verdict(findings)
}

fn model(style: Style) -> ModelSpec {
    let model = small_model(style, style == Style::Gpt2);
    ModelSpec {
        qk_norm: if style == Style::Llama { config::QkNorm::Heads } else { config::QkNorm::Off },
        num_kv_heads: 4,
        ..model
    }
}

#[test]
fn gradients_are_derivatives_of_the_loss() {
    assert_holds(check(&model(Style::Gpt2), &untouched));
    assert_holds(check(&model(Style::Llama), &untouched));
}

#[test]
fn wrong_backward_passes_are_found() {
    let another_activation = |_, rank: RankEngine| {
        alter_ops(rank, |op| {
            if let Op::ActivationBackward { activation, .. } | Op::MatMulActivationBackward { activation, .. } = op {
                *activation = Activation::Relu;
            }
        })
    };
    assert_found(check(&model(Style::Gpt2), &another_activation), "layers.1.ffn.up.weight: derivative");
    let another_turn = |_, rank: RankEngine| {
        alter_ops(rank, |op| {
            if let Op::Rotary { direction, .. } = op {
                *direction = Direction::Forward;
            }
        })
    };
    assert_found(check(&model(Style::Llama), &another_turn), "attention.query.weight: derivative");
    let no_dropout_backward = |_, rank: RankEngine| drop_ops(rank, |op| matches!(op, Op::DropoutBackward { .. }));
    assert_found(check(&model(Style::Gpt2), &no_dropout_backward), "layers.0.ffn.down.weight: derivative");
}
