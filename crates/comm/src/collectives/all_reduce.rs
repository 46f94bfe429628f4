//! The sum over a group, on every member.

use super::all_gather::gather_slices;
use super::reduce_scatter::reduce_slices;
use super::reduction::{Reduction, fold_in_rank_order};
use super::{COPY_LIMIT_BYTES, Call};
use crate::error::CommError;
use crate::operation::Operation;

const OPERATION: Operation = Operation::AllReduce;

/// Replaces `data` on every member by the combination of all members' `data`, element by element
/// in rank order. The same bits on every member; all have the same length.
///
/// # Errors
/// A peer that failed, left, is late, or calls something else.
pub fn all_reduce<R: Reduction>(call: &Call, data: &mut [R::Element]) -> Result<(), CommError> {
    if call.others.is_empty() {
        return Ok(());
    }
    if size_of_val(data) <= COPY_LIMIT_BYTES {
        return all_reduce_small::<R>(call, data);
    }
    reduce_slices::<R>(call, OPERATION, data)?;
    // The peers have read the slices that are overwritten now: the borrow ended with the call.
    gather_slices(call, OPERATION, data)
}

/// Everybody sends all it has and combines all it gets: one wait in all.
fn all_reduce_small<R: Reduction>(call: &Call, data: &mut [R::Element]) -> Result<(), CommError> {
    let bytes = bytemuck::cast_slice(data);
    let len_bytes = bytes.len();
    call.transport.post_copy(call.message(call.others, OPERATION, bytes))?;
    let (position, others) = (call.group.position(), call.others.len());
    call.receive(call.others, OPERATION, len_bytes, &mut |offset, chunks| {
        fold_in_rank_order::<R>(data, position, others, offset, chunks);
    })
}
