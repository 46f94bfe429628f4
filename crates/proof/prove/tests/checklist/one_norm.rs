//! N15: the norm that a run reports is the norm that it clips by, and that of the gradient of the mean loss.

use std::sync::Mutex;

use config::TrainSpec;
use device::{DeviceError, Op};
use program::Instr;
use prove::{Outcome, Watch};
use testkit::intercepted::alter_ops;
use testkit::models::Style;
use testkit::wrapped_engine::WrapRank;
use train::{RankEngine, Worker};

use crate::checklist::rig::*;

/// Nearly all steps are clipped.
const CLIP: f32 = 0.1;

/// The factors by which each rank multiplies the gradients of each step: step, coefficient.
#[derive(Default)]
struct Coefficients(Mutex<Vec<(usize, f32)>>);

impl Watch for Coefficients {
    fn instruction(&self, worker: &Worker<'_>) -> Result<(), DeviceError> {
        if worker.position.program.instrs[worker.position.at] != Instr::GradNorm {
            return Ok(());
        }
        let mut values = [0f32; 4];
        worker.ports.device.read(worker.state.constants.coefficient, bytemuck::cast_slice_mut(&mut values))?;
        self.0.lock().expect("nobody panics with it").push((worker.position.step as usize, values[0]));
        Ok(())
    }
}

/// The norm of the first step's gradients, as they were delivered.
fn norm_of_gradients(outcome: &Outcome) -> f64 {
    outcome.gradients.values().flatten().map(|gradient| f64::from(*gradient).powi(2)).sum::<f64>().sqrt()
}

/// Whether every rank of every layout clips by what is reported. All labels are valid, so nothing else scales
/// gradients.
fn check(at: (usize, usize, usize), wrap: &WrapRank<'_>) -> Verdict {
    let train = TrainSpec { clip_norm: Some(CLIP), ..training(3) };
    let coefficients = Coefficients::default();
    let case = Case::new(&small_model(Style::Gpt2, true), degrees(at), &train).wrapped(wrap).watched(&coefficients);
    let outcome = case.outcome()?;
    let seen = coefficients.0.into_inner().expect("nobody panicked");
    assert_eq!(seen.len(), 3 * at.0 * at.1 * at.2, "one norm per rank and step");
    // The reported norm and the coefficient are each rounded to single precision once.
    let clips_otherwise = |(step, coefficient): &(usize, f32)| {
        let expected = (f64::from(CLIP) / outcome.norms[*step]).min(1.0);
        let is_it = (f64::from(*coefficient) / expected - 1.0).abs() <= 2f64.powi(-23);
        (!is_it).then(|| format!("step {step} multiplies by {coefficient}, the reported norm asks for {expected}"))
    };
    let of_gradients = norm_of_gradients(&outcome);
    // Squares are summed in blocks in single precision, which loses a few roundings.
    let reports_otherwise = (of_gradients / outcome.norms[0] - 1.0).abs() > GRADIENT_BOUND;
    let reports =
        reports_otherwise.then(|| format!("norm {} is reported, gradients have {of_gradients}", outcome.norms[0]));
    verdict(seen.iter().filter_map(clips_otherwise).chain(reports))
}

#[test]
fn the_reported_norm_is_the_one_that_clips() {
    for at in [(1, 1, 1), (2, 2, 2)] {
        assert_holds(check(at, &untouched));
    }
    let clips_by_another = |_, rank: RankEngine| {
        alter_ops(rank, |op| {
            if let Op::ClipCoefficient { clip_norm: Some(clip_norm), .. } = op {
                *clip_norm *= 0.5;
            }
        })
    };
    assert_found(check((1, 2, 1), &clips_by_another), "the reported norm asks for");
    // The norm before the division by the number of tokens.
    let reports_another = |_, rank: RankEngine| {
        alter_ops(rank, |op| {
            if let Op::SquaredSum { loss_scale, .. } = op {
                *loss_scale *= 0.5;
            }
        })
    };
    assert_found(check((1, 1, 2), &reports_another), "is reported, gradients have");
}
