//! Sums over ranks: gradients, the tied table, norm and loss.

use config::{Kept, StateKind, Unit};
use cpu::fixed_point;
use device::{
    COUNT_WORD, Device, DeviceError, Op, Reduction, SUM_WORDS, Stream, SumTree, Tensor, Write, step_sum_words,
};
use model::{Accumulation, Constants};
use program::{GradientAxes, GroupCall, Purpose};

use crate::execute::group_call::issue;
use crate::stop_request::StopRequest;
use crate::worker::Worker;
use crate::worker::ports::RankPorts;
use crate::worker::rank_state::{RankState, zero_sums};
use crate::worker::run_position::{RunPosition, answers_for};
use crate::worker::unit_state::UnitState;

/// Sums the gradient of `unit` that `by` accumulated over `axes`, by [`program::UnitCalls::reduction`]. Where ranks
/// keep shards, the sum is moved or added to this rank's.
///
/// # Errors
/// The communicators'.
///
/// # Panics
/// The parameters of the unit have different data axes: a fault of the program, which the verifier excludes.
pub fn gradients(worker: &mut Worker, unit: Unit, by: Unit, axes: &GradientAxes) -> Result<(), DeviceError> {
    let Worker { position, state: rank, ports } = worker;
    let state = &rank.units[&unit];
    let contribution = position.program.view.contribution(unit, by);
    let made = position.whole(state, contribution, position.setup.train.sums.into());
    let padding = made.elements(state.layout.len..state.layout.padded_len());
    if !contribution.is_state() && !padding.is_empty() {
        // Layers do not write there, and other values lay there before.
        ports.device.submit(Stream::Reduce, &Op::Fill { out: padding, value: 0.0 })?;
    }
    for call in position.calls(state).reduction(axes) {
        issue(&ports.communicators, &call, made)?;
    }
    match position.setup.parallelism.zero.keeps(StateKind::Gradients) {
        Kept::Whole => Ok(()),
        Kept::Shard => {
            let shard = made.elements(state.updated.clone());
            let sum = position.gradient_sum(state, by).tensor;
            let op = match rank.reduction_write(unit, by) {
                Write::Assign => Op::Copy { from: shard, to: sum },
                Write::Accumulate => Op::Accumulate { x: shard, into: sum },
            };
            ports.device.submit(Stream::Reduce, &op)
        }
    }
}

/// Adds the two reduced gradients of a tied table, embedding first: between the ends of the pipeline, or to the head's
/// where one rank has both.
///
/// # Errors
/// The device's and the group's.
pub fn tied(ports: &RankPorts<'_>, position: &RunPosition<'_>, state: &UnitState) -> Result<(), DeviceError> {
    let part = |by: Unit| position.gradient_sum(state, by).part(state.updated.clone());
    match state.makers.as_slice() {
        [] => Ok(()),
        [one] => {
            let (call, sum) = (position.calls(state).tied(), position.gradient_sum(state, *one));
            issue(&ports.communicators, &GroupCall { elements: sum.places(call.elements), ..call }, sum.tensor)
        }
        [finisher, others @ ..] => {
            let mut ops = others.iter().map(|other| Op::Accumulate { x: part(*other), into: part(*finisher) });
            ops.try_for_each(|op| ports.device.submit(Stream::Reduce, &op))
        }
    }
}

/// Global norm, loss and clip coefficient, the same bits on every rank.
///
/// Each element of each parameter is counted once: this rank's data-parallel slice, of copies the first, a tied table
/// where the embedding is. The loss was summed by every rank of the last stage that has the sequences; the first
/// counts.
///
/// An evaluation has no gradients of its own; those of the step before stay uncounted and untouched.
///
/// # Errors
/// The device's and the group's.
pub fn norm(worker: &Worker) -> Result<(), DeviceError> {
    let Worker { position, state, ports } = worker;
    let (device, constants) = (&*ports.device, state.constants);
    match position.program.view.purpose {
        Purpose::Train => {
            sums_to_single(device, position, state)?;
            sum_squares(device, position, state)?;
        }
        Purpose::Evaluate | Purpose::Generate => {}
    }
    if !position.rank.model.is_first() {
        zero_sums(device, Stream::Reduce, constants.all_loss_sums)?;
    }
    let [of_norm, of_loss] = GroupCall::norm(step_sum_words(&position.setup.model));
    issue(&ports.communicators, &of_norm, constants.norm_sums)?;
    issue(&ports.communicators, &of_loss, constants.all_loss_sums)?;
    let op = Op::ClipCoefficient {
        norm_sums: constants.norm_sums,
        loss_sums: constants.loss_sums,
        nominal_tokens: position.nominal_tokens(),
        loss_scale: state.loss_scale.factor(),
        clip_norm: position.setup.train.clip_norm,
        out: constants.coefficient,
    };
    device.submit(Stream::Reduce, &op)
}

/// Rounds exact sums, which are final now, once each for the norm and the optimizer.
fn sums_to_single(device: &dyn Device, position: &RunPosition<'_>, rank: &RankState) -> Result<(), DeviceError> {
    let unit = match position.accumulation(rank.loss_scale.factor()) {
        Accumulation::Single => return Ok(()),
        Accumulation::Exact { unit, .. } => unit,
    };
    let mut sums = rank.units.values().filter_map(|state| Some(position.gradient_sum(state, *state.makers.first()?)));
    sums.try_for_each(|sums| device.submit(Stream::Reduce, &Op::RoundedToSingle { sums: sums.tensor, unit }))
}

/// Adds the squares of this rank's gradients to its sums.
fn sum_squares(device: &dyn Device, position: &RunPosition<'_>, rank: &RankState) -> Result<(), DeviceError> {
    for state in rank.units.values().filter(|state| answers_for(position, state.unit)) {
        let Some(gradient) = position.gradient(state) else { continue };
        for segment in &state.layout.segments {
            if !position.rank.model.is_first_copy(&segment.param, state.layout.axes()) {
                continue;
            }
            let whole = segment.range();
            let (first, last) = (whole.start.max(state.owned.start), whole.end.min(state.owned.end));
            if first < last {
                let op = Op::SquaredSum {
                    x: gradient.part(first..last),
                    first_element: first,
                    loss_scale: rank.loss_scale.factor(),
                    sums: rank.constants.norm_sums,
                };
                device.submit(Stream::Reduce, &op)?;
            }
        }
    }
    Ok(())
}

/// The results of a step's sums; the same on every rank.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepOutcome {
    /// Mean loss over valid tokens.
    pub loss: f64,
    /// Mean z-loss over valid tokens, where the model has one.
    pub z_loss: Option<f64>,
    /// Global norm of the gradient of both.
    pub norm: f64,
    /// Factor from the accumulated gradient to that of the mean loss: nominal over valid tokens and loss scale, 0
    /// without valid ones.
    pub gradient_factor: f64,
    /// Valid tokens of the step.
    pub valid: u64,
    /// Whether a loss or a gradient was not finite anywhere.
    pub not_finite: bool,
    /// Whether any rank requested to stop.
    pub stop: bool,
}

/// Puts this rank's stop request among the step's sums, in the order of the stream that adds them up, so that all ranks
/// stop after the same step.
///
/// # Errors
/// The device's.
pub fn vote(device: &dyn Device, constants: &Constants, stop_request: StopRequest) -> Result<(), DeviceError> {
    let vote = match stop_request {
        StopRequest::None => 0i64,
        StopRequest::Stop => 1,
    };
    let votes = constants.norm_sums.elements(COUNT_WORD..COUNT_WORD + 1);
    device.upload(Stream::Reduce, votes, bytemuck::bytes_of(&vote))
}

/// Reads what [`norm`] computed.
///
/// # Errors
/// The device's.
pub fn read_outcome(worker: &Worker) -> Result<StepOutcome, DeviceError> {
    let Worker { position, state, ports } = worker;
    let (device, constants) = (&*ports.device, &state.constants);
    let mut values = [0f32; 4];
    device.read(constants.coefficient, bytemuck::cast_slice_mut(&mut values))?;
    let words = |sums: Tensor| -> Result<[i64; SUM_WORDS], DeviceError> {
        let mut words = [0i64; SUM_WORDS];
        device.read(sums, bytemuck::cast_slice_mut(&mut words))?;
        Ok(words)
    };
    let valid = words(constants.loss_sums)?[COUNT_WORD];
    let z_sum = constants.z_loss_sums.map(words).transpose()?;
    let [_, norm, loss, not_finite] = values;
    Ok(StepOutcome {
        loss: f64::from(loss),
        z_loss: z_sum.map(|words| if valid > 0 { fixed_point::to_f64(&words) / valid as f64 } else { 0.0 }),
        norm: f64::from(norm),
        gradient_factor: if valid > 0 {
            position.nominal_tokens() / valid as f64 / f64::from(state.loss_scale.factor())
        } else {
            0.0
        },
        valid: u64::try_from(valid).unwrap_or(0),
        not_finite: not_finite != 0.0,
        stop: words(constants.norm_sums)?[COUNT_WORD] > 0,
    })
}

/// Waits until every rank is here. Memory that a rank lent to a receiver is free only then: programs that end with a
/// sum over all ranks need no other end, one that generates does.
///
/// # Errors
/// The group's.
pub fn wait_for_all(ports: &RankPorts<'_>, constants: &Constants) -> Result<(), DeviceError> {
    zero_sums(&*ports.device, Stream::Reduce, constants.norm_sums)?;
    ports.communicators.world().all_reduce(Stream::Reduce, constants.norm_sums, Reduction::Sum(SumTree::RANK_ORDER))
}
