//! Hands a rank's pieces of global tensors to a sink. Over all ranks every element comes once.

use device::{DeviceError, Tensor};
use spec::Unit;
use spec::unit::Tied;

use crate::pieces::{Copies, pieces};
use crate::rank::Rank;
use crate::reduce::StepOutcome;
use crate::sink::TensorSink;
use crate::state::UnitState;

/// The weights.
///
/// # Errors
/// The device's.
pub fn weights(rank: &Rank<'_>, sink: &dyn TensorSink) -> Result<(), DeviceError> {
    deliver(rank, sink, |state| Some(state.params), 1.0)
}

/// The reduced gradients of the step that has just been done, of the mean loss over valid tokens, before clipping.
///
/// # Errors
/// The device's.
pub fn gradients(rank: &Rank<'_>, sink: &dyn TensorSink, outcome: &StepOutcome) -> Result<(), DeviceError> {
    deliver(rank, sink, UnitState::gradient, outcome.gradient_factor as f32)
}

fn deliver(
    rank: &Rank<'_>,
    sink: &dyn TensorSink,
    tensor: impl Fn(&UnitState) -> Option<Tensor>,
    factor: f32,
) -> Result<(), DeviceError> {
    for state in rank.units.values().filter(|state| answers_for(rank, state.unit)) {
        let Some(flat) = tensor(state) else { continue };
        for piece in pieces(&state.layout, state.owned.clone(), rank.tensor, Copies::First) {
            let mut values = vec![0.0f32; piece.elements.len()];
            rank.device.read(flat.elements(piece.elements), bytemuck::cast_slice_mut(&mut values))?;
            values.iter_mut().for_each(|value| *value *= factor);
            sink.put(piece.param, &piece.region, &values);
        }
    }
    Ok(())
}

/// A tied table that two ranks hold is delivered by the embedding's.
pub fn answers_for(rank: &Rank<'_>, unit: Unit) -> bool {
    match (unit, rank.setup.model.tied()) {
        (Unit::Table, Tied::Yes) => rank.program.place.computes(Unit::Embedding),
        (Unit::Table, Tied::No) | (Unit::Embedding | Unit::Layer(_) | Unit::Head, _) => true,
    }
}
