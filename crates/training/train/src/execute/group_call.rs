//! One call of a collective, from the list of an instruction to the communicators of a rank.

use device::{DeviceError, Stream, Tensor};
use program::GroupCall;

use crate::engine::Communicators;

/// Issues `call` on the reduction stream, over its elements of `buffer`.
///
/// # Errors
/// The group's, and a group that the rank does not have.
pub fn issue(communicators: &Communicators, call: &GroupCall, buffer: Tensor) -> Result<(), DeviceError> {
    let (group, x) = (communicators.group(call.group)?, buffer.elements(call.elements.clone()));
    group.call(Stream::Reduce, call.collective.on(x))
}
