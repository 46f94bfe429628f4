//! One member's buffer on every member.

use super::Call;
use super::over_hosts::broadcast_over_hosts;
use crate::error::CommError;
use crate::operation::Operation;
use bytemuck::Pod;

/// Replaces `data` on every member by the `data` of the member at position `root`. All have the
/// same length.
///
/// # Errors
/// A root outside the group; a peer that failed, left, is late, or calls something else.
pub fn broadcast<T: Pod>(call: &Call, root: usize, data: &mut [T]) -> Result<(), CommError> {
    let Some(root_rank) = call.group.member(root) else {
        return Err(CommError::NoSuchPosition { rank: call.group.rank(), position: root, members: call.group.size() });
    };
    if call.others.is_empty() {
        return Ok(());
    }
    let operation = Operation::Broadcast;
    let data: &mut [u8] = bytemuck::cast_slice_mut(data);
    if call.goes_over_hosts(data.len()) {
        return broadcast_over_hosts(call, root, data);
    }
    if root == call.group.position() {
        let message = call.message(call.others, operation, data);
        return call.exchange(data.len(), &mut std::iter::once(message), &mut || Ok(()));
    }
    call.receive_into(&[root_rank], operation, &mut [data])
}
