//! Parameters out of their data-parallel shards: in place, or whole for a while. The counterpart of [`crate::execute::reduce::gradients`].

use config::{Kept, StateKind, Unit};
use device::{DeviceError, Op, Stream};
use program::Value;

use crate::worker::Rank;
use crate::worker::memory;

/// Fills the other ranks' shards of the parameters of `unit`: where state is whole, in it; where it is a shard, in the
/// place that the plan has for the gathered parameters.
///
/// # Errors
/// The device's and the group's.
pub fn parameters(rank: &mut Rank, unit: Unit) -> Result<(), DeviceError> {
    let state = &rank.units[&unit];
    let whole = match rank.setup.parallelism.zero.keeps(StateKind::Parameters) {
        Kept::Whole => state.params.tensor,
        Kept::Shard => {
            let (len, dtype) = (state.layout.padded_len(), rank.setup.stored());
            let whole = memory::numbers_at(rank.plan, Value::Gathered(unit), rank.at, len, dtype);
            let own = whole.elements(state.params.elements.clone());
            rank.device.submit(Stream::Reduce, &Op::Copy { from: state.params.tensor, to: own })?;
            whole
        }
    };
    rank.groups.data.all_gather(Stream::Reduce, whole)
}
