//! Sums over ranks: gradients, the tied table, norm and loss.

use config::{Kept, StateKind, Unit};
use device::{COUNT_WORD, Device, DeviceError, Op, Reduction, SUM_WORDS, Stream, Tensor, Write};
use model::Accumulation;
use program::{GradientAxes, GroupCall, Purpose};

use crate::execute::group_call::issue;
use crate::run::observer::Wish;
use crate::storage::deliver::answers_for;
use crate::worker::Worker;
use crate::worker::memory;

/// Sums the gradient of `unit` that `by` accumulated over `axes`, by [`program::UnitCalls::reduction`]. Where ranks keep
/// shards, the sum is moved or added to this rank's.
///
/// # Errors
/// The communicators'.
///
/// # Panics
/// The parameters of the unit have different data axes: a fault of the program, which the verifier excludes.
pub fn gradients(worker: &mut Worker, unit: Unit, by: Unit, axes: &GradientAxes) -> Result<(), DeviceError> {
    let state = &worker.units[&unit];
    let (contribution, len) = (worker.program.view.contribution(unit, by), state.layout.padded_len());
    let made = memory::numbers_at(worker.plan, contribution, worker.at, len, worker.setup.train.sums.into());
    let padding = made.elements(state.layout.len..state.layout.padded_len());
    if !contribution.is_state() && !padding.is_empty() {
        // Layers do not write there, and other values lay there before.
        worker.device.submit(Stream::Reduce, &Op::Fill { out: padding, value: 0.0 })?;
    }
    for call in worker.calls(state).reduction(axes) {
        issue(&worker.communicators, &call, made)?;
    }
    match worker.setup.parallelism.zero.keeps(StateKind::Gradients) {
        Kept::Whole => Ok(()),
        Kept::Shard => {
            let shard = made.elements(state.updated.clone());
            let sum = worker.gradient_sum(unit, by).tensor;
            let op = match worker.reduction_write(unit, by) {
                Write::Assign => Op::Copy { from: shard, to: sum },
                Write::Accumulate => Op::Accumulate { x: shard, into: sum },
            };
            worker.device.submit(Stream::Reduce, &op)
        }
    }
}

/// Adds the two reduced gradients of a tied table, embedding first: between the ends of the pipeline, or to the head's where one
/// rank has both.
///
/// # Errors
/// The device's and the group's.
pub fn tied(worker: &mut Worker) -> Result<(), DeviceError> {
    let state = &worker.units[&Unit::Table];
    let part = |by: Unit| worker.gradient_sum(Unit::Table, by).part(state.updated.clone());
    match state.makers.as_slice() {
        [] => Ok(()),
        [one] => {
            let (call, sum) = (worker.calls(state).tied(), worker.gradient_sum(Unit::Table, *one));
            issue(&worker.communicators, &GroupCall { elements: sum.places(call.elements), ..call }, sum.tensor)
        }
        [finisher, others @ ..] => {
            let mut ops = others.iter().map(|other| Op::Accumulate { x: part(*other), into: part(*finisher) });
            ops.try_for_each(|op| worker.device.submit(Stream::Reduce, &op))
        }
    }
}

/// Global norm, loss and clip coefficient, the same bits on every rank.
///
/// Each element of each parameter is counted once: this rank's data-parallel slice, of copies the first, a tied table where
/// the embedding is. The loss was summed by every rank of the last stage that has the sequences; the first counts.
///
/// An evaluation has no gradients of its own; those of the step before stay uncounted and untouched.
///
/// # Errors
/// The device's and the group's.
pub fn norm(worker: &mut Worker) -> Result<(), DeviceError> {
    let (device, constants) = (&*worker.device, worker.constants);
    match worker.program.view.purpose {
        Purpose::Train => {
            sums_to_single(worker)?;
            sum_squares(worker)?;
        }
        Purpose::Evaluate | Purpose::Generate => {}
    }
    if !worker.model_coord.is_first() {
        zero_sums(device, constants.loss_sums)?;
    }
    let [of_norm, of_loss] = GroupCall::NORM;
    issue(&worker.communicators, &of_norm, constants.norm_sums)?;
    issue(&worker.communicators, &of_loss, constants.loss_sums)?;
    let op = Op::ClipCoefficient {
        norm_sums: constants.norm_sums,
        loss_sums: constants.loss_sums,
        nominal_tokens: worker.nominal_tokens(),
        loss_scale: worker.loss_scale.factor(),
        clip_norm: worker.setup.train.clip_norm,
        out: constants.coefficient,
    };
    device.submit(Stream::Reduce, &op)
}

/// What the norm and the optimizer read: exact sums are final now, and each is rounded once.
fn sums_to_single(worker: &Worker) -> Result<(), DeviceError> {
    let unit = match worker.accumulation() {
        Accumulation::Single => return Ok(()),
        Accumulation::Exact { unit, .. } => unit,
    };
    let mut sums =
        worker.units.values().filter_map(|state| Some(worker.gradient_sum(state.unit, *state.makers.first()?)));
    sums.try_for_each(|sums| worker.device.submit(Stream::Reduce, &Op::RoundedToSingle { sums: sums.tensor, unit }))
}

/// Adds the squares of this rank's gradients to its sums.
fn sum_squares(worker: &Worker) -> Result<(), DeviceError> {
    let (device, constants) = (&*worker.device, worker.constants);
    for state in worker.units.values().filter(|state| answers_for(worker, state.unit)) {
        let Some(gradient) = worker.gradient(state.unit) else { continue };
        for segment in &state.layout.segments {
            if !worker.model_coord.is_first_copy(&segment.param) {
                continue;
            }
            let whole = segment.range();
            let (first, last) = (whole.start.max(state.owned.start), whole.end.min(state.owned.end));
            if first < last {
                let op = Op::SquaredSum {
                    x: gradient.part(first..last),
                    first_element: first,
                    loss_scale: worker.loss_scale.factor(),
                    sums: constants.norm_sums,
                };
                device.submit(Stream::Reduce, &op)?;
            }
        }
    }
    Ok(())
}

/// What a step's sums say; the same on every rank.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepOutcome {
    /// Mean loss over valid tokens.
    pub loss: f64,
    /// Global norm of its gradient.
    pub norm: f64,
    /// Factor from the accumulated gradient to that of the mean loss: nominal over valid tokens and loss scale, 0 without valid ones.
    pub gradient_factor: f64,
    /// Whether a loss or a gradient was not finite anywhere.
    pub not_finite: bool,
    /// Whether any rank wished to stop.
    pub stop: bool,
}

/// Puts this rank's wish among the step's sums, so that all ranks stop after the same step.
///
/// # Errors
/// The device's.
pub fn vote(worker: &Worker, wish: Wish) -> Result<(), DeviceError> {
    let vote = match wish {
        Wish::Continue => 0i64,
        Wish::Stop => 1,
    };
    let votes = worker.constants.norm_sums.elements(COUNT_WORD..COUNT_WORD + 1);
    worker.device.write(votes, bytemuck::bytes_of(&vote))
}

/// Reads what [`norm`] computed.
///
/// # Errors
/// The device's.
pub fn read_outcome(worker: &Worker) -> Result<StepOutcome, DeviceError> {
    let mut values = [0f32; 4];
    worker.device.read(worker.constants.coefficient, bytemuck::cast_slice_mut(&mut values))?;
    let count = |sums: Tensor| -> Result<i64, DeviceError> {
        let mut words = [0i64; SUM_WORDS];
        worker.device.read(sums, bytemuck::cast_slice_mut(&mut words))?;
        Ok(words[COUNT_WORD])
    };
    let valid = count(worker.constants.loss_sums)?;
    let [_, norm, loss, not_finite] = values;
    Ok(StepOutcome {
        loss: f64::from(loss),
        norm: f64::from(norm),
        gradient_factor: if valid > 0 {
            worker.nominal_tokens() / valid as f64 / f64::from(worker.loss_scale.factor())
        } else {
            0.0
        },
        not_finite: not_finite != 0.0,
        stop: count(worker.constants.norm_sums)? > 0,
    })
}

/// Sets integer sums to zero.
///
/// # Errors
/// The device's.
pub fn zero_sums(device: &dyn Device, sums: Tensor) -> Result<(), DeviceError> {
    device.write(sums, bytemuck::cast_slice(&[0i64; SUM_WORDS]))
}

/// Waits until every rank is here. What a rank lent to a receiver is free only then: programs that end with a sum over all
/// ranks need no other end, one that generates does.
///
/// # Errors
/// The group's.
pub fn wait_for_all(worker: &Worker) -> Result<(), DeviceError> {
    zero_sums(&*worker.device, worker.constants.norm_sums)?;
    worker.communicators.world().all_reduce(Stream::Reduce, worker.constants.norm_sums, Reduction::Sum)
}
