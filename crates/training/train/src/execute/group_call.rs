//! One call of a collective, from the list of an instruction to the communicators of a rank.

use device::{DeviceError, Reduction, Stream, Tensor};
use program::{Collective, GroupCall};

use crate::engine::Communicators;

/// Issues `call` on the reduction stream, over its elements of `buffer`.
///
/// # Errors
/// The group's, and a group that the rank does not have.
pub fn issue(communicators: &Communicators, call: &GroupCall, buffer: Tensor) -> Result<(), DeviceError> {
    let (group, x) = (communicators.group(call.group)?, buffer.elements(call.elements.clone()));
    match call.collective {
        Collective::AllReduce(tree) => group.all_reduce(Stream::Reduce, x, Reduction::Sum(tree)),
        Collective::ReduceScatter(tree) => group.reduce_scatter(Stream::Reduce, x, tree),
        Collective::AllGather => group.all_gather(Stream::Reduce, x),
    }
}
