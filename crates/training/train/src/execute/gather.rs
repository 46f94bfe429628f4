//! Gathers parameters from their data-parallel shards, in place or into a buffer that is freed after use. The
//! counterpart of [`crate::execute::reduce::gradients`].

use config::{Kept, StateKind};
use device::{DeviceError, Op, Stream};
use program::Value;

use crate::execute::group_call::issue;
use crate::worker::ports::RankPorts;
use crate::worker::run_position::RunPosition;
use crate::worker::unit_state::UnitState;

/// Fills the other ranks' shards of the parameters of the unit of `state`: where state is whole, in it; where it is a
/// shard, in the place that the plan has for the gathered parameters.
///
/// # Errors
/// The device's and the group's.
pub fn parameters(ports: &RankPorts<'_>, position: &RunPosition<'_>, state: &UnitState) -> Result<(), DeviceError> {
    let setup = position.setup;
    let whole = match setup.parallelism.zero.keeps(StateKind::Parameters) {
        Kept::Whole => state.params.tensor,
        Kept::Shard => {
            let whole = position.whole(state, Value::Gathered(state.unit), setup.stored());
            let own = whole.elements(state.params.elements.clone());
            ports.device.submit(Stream::Reduce, &Op::Copy { from: state.params.tensor, to: own })?;
            whole
        }
    };
    issue(&ports.communicators, &position.calls(state).gather(), whole)
}
