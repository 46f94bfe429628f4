//! Waiting for everybody.

use super::Call;
use crate::error::CommError;
use crate::operation::Operation;

/// Returns when every member has called it.
///
/// # Errors
/// A peer that failed, left, is late, or calls something else.
pub fn barrier(call: &Call) -> Result<(), CommError> {
    if call.others.is_empty() {
        return Ok(());
    }
    let message = call.message(call.others, Operation::Barrier, &[]);
    call.transport.post_copy(message)?;
    call.receive(call.others, Operation::Barrier, 0, &mut |_, _| {})
}
