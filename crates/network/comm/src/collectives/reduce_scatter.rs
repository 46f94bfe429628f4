//! The sum over a group, each member keeping its slice.

use super::Call;
use super::reduction::{Reduction, fold_in_rank_order};
use super::runs::{Runs, reduce_in_runs};
use super::slices::{cut, member_of_other};
use crate::error::CommError;
use crate::operation::Operation;
use device::SumTree;

/// Replaces slice `position` of `data`, cut into one equal slice per member, by the combination of
/// all members' slices there, element by element in rank order. The other slices keep their values.
///
/// # Errors
/// A length that the group does not divide; a peer that failed, left, is late, or calls something
/// else.
pub fn reduce_scatter<R: Reduction>(call: &Call, data: &mut [R::Element]) -> Result<(), CommError> {
    call.check_equal_slices(Operation::ReduceScatter, data.len())?;
    reduce_slices::<R>(call, Operation::ReduceScatter, data)
}

/// Reduces as [`reduce_scatter`] does, in the order of `tree`. Where that is not rank order, the other slices are
/// unspecified afterwards.
///
/// # Errors
/// The errors of [`reduce_scatter`].
pub fn reduce_scatter_in_runs<R>(call: &Call, data: &mut [R::Element], tree: SumTree) -> Result<(), CommError>
where
    R: Reduction<Partial = <R as Reduction>::Element>,
{
    call.check_equal_slices(Operation::ReduceScatter, data.len())?;
    match Runs::of(tree, call.group.size()) {
        None => reduce_slices::<R>(call, Operation::ReduceScatter, data),
        Some(runs) => reduce_in_runs::<R>(call, Operation::ReduceScatter, data, runs),
    }
}

/// Reduces as [`reduce_scatter`] does, for slices that may differ by one element.
pub(super) fn reduce_slices<R: Reduction>(
    call: &Call,
    operation: Operation,
    data: &mut [R::Element],
) -> Result<(), CommError> {
    if call.others.is_empty() {
        return Ok(());
    }
    let (position, members) = (call.group.position(), call.group.size());
    let longest_bytes = data.len().div_ceil(members) * size_of::<R::Element>();
    let (own, slices) = cut(data, members, position);
    let mut messages = call.others.chunks(1).enumerate().map(|(index, to)| {
        let slice = slices.get(member_of_other(index, position));
        call.message(to, operation, bytemuck::cast_slice(slice))
    });
    call.exchange(longest_bytes, &mut messages, &mut || {
        let own_bytes = size_of_val(own);
        call.receive(call.others, operation, own_bytes, &mut |offset, chunks| {
            fold_in_rank_order::<R>(own, position, call.others.len(), offset, chunks);
        })
    })
}
