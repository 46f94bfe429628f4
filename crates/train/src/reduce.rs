//! Sums over ranks at the end of a step: gradients, the tied table, norm and loss.

use device::{DeviceError, Op, Reduction, Stream, Tensor};
use mesh::Axis;
use spec::unit::Tied;
use spec::{Sharding, Unit, ZeroStage, gradient_axes};

use crate::rank::Rank;

/// Sums the gradient of `unit` that `by` accumulated over the axes that each parameter needs: tensor parallelism for
/// replicated parameters of sharded values, then data parallelism, whole or to this rank's shard.
///
/// # Errors
/// The groups'.
pub fn gradients(rank: &mut Rank, unit: Unit, by: Unit) -> Result<(), DeviceError> {
    let state = &rank.units[&unit];
    let Some(accumulator) = state.accumulator(by) else { return Ok(()) };
    if rank.tensor.size > 1 {
        for segment in &state.layout.segments {
            if gradient_axes(&segment.param, &rank.setup.parallelism).contains(Axis::Tp) {
                let part = accumulator.elements(segment.range());
                rank.groups.tensor.all_reduce(Stream::Reduce, part, Reduction::Sum)?;
            }
        }
    }
    match rank.setup.parallelism.zero {
        ZeroStage::Off => rank.groups.data.all_reduce(Stream::Reduce, accumulator, Reduction::Sum),
        ZeroStage::One => rank.groups.data.reduce_scatter(Stream::Reduce, accumulator),
    }
}

/// Adds the two reduced gradients of a tied table, embedding first: between the ends of the pipeline, or in place where one
/// rank has both.
///
/// # Errors
/// The device's and the group's.
pub fn tied(rank: &mut Rank) -> Result<(), DeviceError> {
    let state = &rank.units[&Unit::Table];
    let part = |accumulator: Tensor| accumulator.elements(state.updated.clone());
    match (state.accumulator(Unit::Embedding), state.accumulator(Unit::Head)) {
        (Some(input), Some(output)) => {
            let op = Op::Accumulate { x: part(output), into: part(input) };
            rank.device.submit(Stream::Reduce, &op)
        }
        (Some(one), None) | (None, Some(one)) => {
            rank.groups.tied.all_reduce(Stream::Reduce, part(one), Reduction::Sum)
        }
        (None, None) => Ok(()),
    }
}

/// Global norm, loss and clip coefficient, the same bits on every rank.
///
/// Each element of each parameter is counted once: this rank's data-parallel slice, replicated parameters on tensor-parallel position
/// 0, a tied table where the embedding is. The loss was summed by every tensor-parallel rank of the last stage; position 0 counts.
///
/// # Errors
/// The device's and the group's.
pub fn norm(rank: &mut Rank) -> Result<(), DeviceError> {
    let (device, constants) = (&*rank.device, rank.constants);
    for state in rank.units.values().filter(|state| counts_in_norm(rank, state.unit)) {
        let Some(gradient) = state.gradient() else { continue };
        for segment in &state.layout.segments {
            if segment.param.sharding == Sharding::Replicated && rank.tensor.position != 0 {
                continue;
            }
            let whole = segment.range();
            let (first, last) = (whole.start.max(state.owned.start), whole.end.min(state.owned.end));
            if first < last {
                let op = Op::SquaredSum {
                    x: gradient.elements(first..last),
                    first_element: first,
                    sums: constants.norm_sums,
                };
                device.submit(Stream::Reduce, &op)?;
            }
        }
    }
    if rank.tensor.position != 0 {
        zero_sums(device, constants.loss_sums)?;
    }
    for sums in [constants.norm_sums, constants.loss_sums] {
        rank.groups.world.all_reduce(Stream::Reduce, sums, Reduction::Sum)?;
    }
    let op = Op::ClipCoefficient {
        norm_sums: constants.norm_sums,
        loss_sums: constants.loss_sums,
        nominal_tokens: rank.setup.nominal_tokens(),
        clip_norm: rank.setup.train.clip_norm,
        out: constants.coefficient,
    };
    device.submit(Stream::Reduce, &op)
}

/// A tied table that two ranks hold is counted on the embedding's.
fn counts_in_norm(rank: &Rank, unit: Unit) -> bool {
    match (unit, rank.setup.model.tied()) {
        (Unit::Table, Tied::Yes) => rank.stage.train.place.computes(Unit::Embedding),
        (Unit::Table, Tied::No) | (Unit::Embedding | Unit::Layer(_) | Unit::Head, _) => true,
    }
}

/// Sets integer sums to zero.
///
/// # Errors
/// The device's.
pub fn zero_sums(device: &dyn device::Device, sums: Tensor) -> Result<(), DeviceError> {
    const ZEROS: [u8; 128] = [0; 128];
    device.write(sums, &ZEROS[..sums.size_bytes()])
}
