//! Hands a rank's pieces of global tensors to a sink. Over all ranks every element comes once.

use device::DeviceError;

use crate::execute::reduce::StepOutcome;
use crate::storage::pieces::{Copies, pieces};
use crate::storage::routers;
use crate::storage::sink::TensorSink;
use crate::worker::Worker;
use crate::worker::run_position::answers_for;
use crate::worker::unit_state::{Held, UnitState};

/// The weights, as far as this rank answers for them.
///
/// # Errors
/// The device's.
pub fn weights(worker: &Worker<'_>, sink: &dyn TensorSink) -> Result<(), DeviceError> {
    worker.state.units.values().try_for_each(|state| deliver(worker, state, state.weights(), 1.0, sink))?;
    routers::deliver(worker, sink)
}

/// The reduced gradients of the step that has just been done, of the mean loss over valid tokens, before clipping.
///
/// # Errors
/// The device's.
pub fn gradients(worker: &Worker<'_>, sink: &dyn TensorSink, outcome: &StepOutcome) -> Result<(), DeviceError> {
    for state in worker.state.units.values() {
        if let Some(gradient) = worker.position.gradient(state) {
            deliver(worker, state, &gradient, outcome.gradient_factor as f32, sink)?;
        }
    }
    Ok(())
}

/// Hands over `factor` times the elements of `held` that this rank answers for.
fn deliver(
    worker: &Worker<'_>,
    state: &UnitState,
    held: &Held,
    factor: f32,
    sink: &dyn TensorSink,
) -> Result<(), DeviceError> {
    if !answers_for(&worker.position, state.unit) {
        return Ok(());
    }
    for piece in pieces(&state.layout, state.owned.clone(), worker.position.rank.model, Copies::First) {
        let mut values = device::read_floats(&*worker.ports.device, held.part(piece.elements))?;
        values.iter_mut().for_each(|value| *value *= factor);
        sink.put(piece.param, &piece.region, &values);
    }
    Ok(())
}
