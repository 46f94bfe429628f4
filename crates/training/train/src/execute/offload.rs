//! Copies of optimizer state and of activations between memory of the host and the arena.

use config::{Microbatch, Unit};
use device::{DeviceError, Op, Stream, Tensor};
use program::Value;

use crate::worker::ports::RankPorts;
use crate::worker::run_position::RunPosition;
use crate::worker::unit_state::UnitState;

/// The direction of a copy between the arena and memory of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyDirection {
    /// From memory of the host, before it is used.
    Fetch,
    /// To memory of the host, after that.
    Offload,
}

/// Copies all parts of the optimizer state of the unit of `state`.
///
/// # Errors
/// The device's.
pub fn copy(
    ports: &RankPorts<'_>,
    position: &RunPosition<'_>,
    state: &UnitState,
    direction: CopyDirection,
) -> Result<(), DeviceError> {
    let staged = state.staged(position);
    let pairs = state.optimizer_parts().zip(staged.optimizer_parts());
    let mut pairs = pairs.map(|((_, host), (_, staged))| (host.tensor, staged.tensor));
    pairs.try_for_each(|(host, staged)| submit(ports, host, staged, direction))
}

/// Copies what the forward pass of `unit` left for its backward pass.
///
/// # Errors
/// The device's.
pub fn copy_activations(
    ports: &RankPorts<'_>,
    position: &RunPosition<'_>,
    (unit, microbatch): (Unit, Microbatch),
    direction: CopyDirection,
) -> Result<(), DeviceError> {
    let activations = position.activations();
    position.program.view.offloaded_activations(unit).try_for_each(|(unit, part)| {
        let host = activations.words(Value::OnHost { unit, microbatch, part });
        submit(ports, host, activations.words(part.of(unit, microbatch)), direction)
    })
}

fn submit(ports: &RankPorts<'_>, host: Tensor, own: Tensor, direction: CopyDirection) -> Result<(), DeviceError> {
    let (stream, from, to) = match direction {
        CopyDirection::Fetch => (Stream::Fetch, host, own),
        CopyDirection::Offload => (Stream::Offload, own, host),
    };
    if from.is_empty() { Ok(()) } else { ports.device.submit(stream, &Op::Copy { from, to }) }
}
