//! Waiting for everybody.

use super::Call;
use super::over_first::{goes_over_first, reduce_over_first};
use crate::error::CommError;
use device::Operation;

/// Returns when every member has called it.
///
/// # Errors
/// A peer that failed, left, is late, or calls something else.
pub fn barrier(call: &Call) -> Result<(), CommError> {
    if call.others.is_empty() {
        return Ok(());
    }
    if goes_over_first(call.group.size()) {
        return reduce_over_first::<u8>(call, Operation::Barrier, &mut [], |_, _, _, _, _| {});
    }
    let message = call.message(call.others, Operation::Barrier, &[]);
    call.transport.post_copy(message)?;
    call.receive(call.others, Operation::Barrier, 0, &mut |_, _| {})
}
