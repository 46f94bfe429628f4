//! Every member's buffer on the next member, counted round.

use super::Call;
use crate::error::CommError;
use crate::operation::Operation;
use bytemuck::Pod;

/// Replaces `to` by the `from` of the previous member; the first one gets that of the last. All buffers have one
/// length.
///
/// # Errors
/// A peer that failed, left, is late, or calls something else.
///
/// # Panics
/// The two buffers differ in length.
pub fn shift<T: Pod>(call: &Call, from: &[T], to: &mut [T]) -> Result<(), CommError> {
    assert_eq!(from.len(), to.len(), "both buffers of a ring shift have one length");
    let (position, members) = (call.group.position(), call.group.members());
    if call.others.is_empty() {
        to.copy_from_slice(from);
        return Ok(());
    }
    let next = [members[(position + 1) % members.len()]];
    let previous = [members[(position + members.len() - 1) % members.len()]];
    let message = call.message(&next, Operation::Shift, bytemuck::cast_slice(from));
    call.exchange(size_of_val(from), &mut std::iter::once(message), &mut || {
        call.receive_into(&previous, Operation::Shift, &mut [bytemuck::cast_slice_mut(to)])
    })
}
