//! Gathers parameters from their data-parallel shards, in place or into a buffer that is freed after use. The counterpart
//! of [`crate::execute::reduce::gradients`].

use config::{Kept, StateKind, Unit};
use device::{DeviceError, Op, Stream};
use program::Value;

use crate::execute::group_call::issue;
use crate::worker::Worker;
use crate::worker::memory;

/// Fills the other ranks' shards of the parameters of `unit`: where state is whole, in it; where it is a shard, in the
/// place that the plan has for the gathered parameters.
///
/// # Errors
/// The device's and the group's.
pub fn parameters(worker: &mut Worker, unit: Unit) -> Result<(), DeviceError> {
    let state = &worker.units[&unit];
    let whole = match worker.setup.parallelism.zero.keeps(StateKind::Parameters) {
        Kept::Whole => state.params.tensor,
        Kept::Shard => {
            let (len, dtype) = (state.layout.padded_len(), worker.setup.stored());
            let whole = memory::numbers_at(worker.plan, Value::Gathered(unit), worker.at, len, dtype);
            let own = whole.elements(state.params.elements.clone());
            worker.device.submit(Stream::Reduce, &Op::Copy { from: state.params.tensor, to: own })?;
            whole
        }
    };
    issue(&worker.communicators, &worker.calls(state).gather(), whole)
}
