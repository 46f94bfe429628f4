//! Copies of optimizer state between memory of the host and the arena.

use device::{DeviceError, Op, Stream};

use crate::worker::ports::RankPorts;
use crate::worker::run_position::RunPosition;
use crate::worker::unit_state::UnitState;

/// Which way state is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From memory of the host, before the update of its unit.
    Fetch,
    /// To memory of the host, after it.
    Offload,
}

/// Copies all parts of the optimizer state of the unit of `state`.
///
/// # Errors
/// The device's.
pub fn copy(ports: &RankPorts<'_>, position: &RunPosition<'_>, state: &UnitState, way: Way) -> Result<(), DeviceError> {
    let staged = state.staged(position);
    let pairs = state.optimizer_parts().zip(staged.optimizer_parts());
    pairs.map(|((_, host), (_, staged))| (host.tensor, staged.tensor)).try_for_each(|(host, staged)| {
        let (stream, from, to) = match way {
            Way::Fetch => (Stream::Fetch, host, staged),
            Way::Offload => (Stream::Offload, staged, host),
        };
        if from.is_empty() { Ok(()) } else { ports.device.submit(stream, &Op::Copy { from, to }) }
    })
}
