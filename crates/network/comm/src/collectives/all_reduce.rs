//! The sum over a group, on every member.

use super::all_gather::gather_slices;
use super::over_first::{goes_over_first, reduce_over_first};
use super::reduce_scatter::reduce_slices;
use super::reduction::{Reduction, fold_in_rank_order, fold_in_runs};
use super::runs::{Runs, reduce_in_runs};
use super::{COPY_LIMIT_BYTES, Call};
use crate::error::CommError;
use crate::operation::Operation;
use crate::transport::Chunks;
use bytemuck::Pod;
use device::SumTree;

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
        return all_reduce_small(call, data, fold_in_rank_order::<R>);
    }
    reduce_slices::<R>(call, OPERATION, data)?;
    // The peers have read the slices that are overwritten now: the borrow ended with the call.
    gather_slices(call, OPERATION, data)
}

/// Reduces as [`all_reduce`] does, in the order of `tree`.
///
/// # Errors
/// The errors of [`all_reduce`].
pub fn all_reduce_in_runs<R>(call: &Call, data: &mut [R::Element], tree: SumTree) -> Result<(), CommError>
where
    R: Reduction<Partial = <R as Reduction>::Element>,
{
    let Some(runs) = Runs::of(tree, call.group.size()) else {
        return all_reduce::<R>(call, data);
    };
    if size_of_val(data) <= COPY_LIMIT_BYTES {
        return all_reduce_small(call, data, |own, position, _, offset, chunks| {
            fold_in_runs::<R>(own, position, runs, offset, chunks);
        });
    }
    reduce_in_runs::<R>(call, OPERATION, data, runs)?;
    gather_slices(call, OPERATION, data)
}

/// Everybody sends all it has and combines all it gets: one wait in all; in a large group the first member combines.
/// `fold` takes the whole buffer, the position, the number of other members, the offset in bytes and the chunks.
fn all_reduce_small<E: Pod>(
    call: &Call,
    data: &mut [E],
    fold: impl Fn(&mut [E], usize, usize, usize, &dyn Chunks),
) -> Result<(), CommError> {
    if goes_over_first(call.group.size()) {
        return reduce_over_first(call, OPERATION, data, fold);
    }
    let bytes = bytemuck::cast_slice(data);
    let len_bytes = bytes.len();
    call.transport.post_copy(call.message(call.others, OPERATION, bytes))?;
    let (position, others) = (call.group.position(), call.others.len());
    call.receive(call.others, OPERATION, len_bytes, &mut |offset, chunks| {
        fold(data, position, others, offset, chunks);
    })
}
