//! Every member's slice on every member.

use super::Call;
use super::over_hosts::{gather_over_hosts, split};
use crate::error::CommError;
use crate::operation::Operation;
use bytemuck::Pod;

/// Fills the slices of the other members in `data`, cut into one equal slice per member, with what
/// each of them has there. Slice `position` keeps its values.
///
/// # Errors
/// A length that the group does not divide; a peer that failed, left, is late, or calls something
/// else.
pub fn all_gather<T: Pod>(call: &Call, data: &mut [T]) -> Result<(), CommError> {
    call.check_equal_slices(Operation::AllGather, data.len())?;
    gather_slices(call, Operation::AllGather, data)
}

/// Gathers as [`all_gather`] does, for slices that may differ by one element.
pub(super) fn gather_slices<T: Pod>(call: &Call, operation: Operation, data: &mut [T]) -> Result<(), CommError> {
    if call.others.is_empty() {
        return Ok(());
    }
    let (position, members) = (call.group.position(), call.group.size());
    let num_longer = data.len() % members;
    // The members with a longer slice come first, so the others split in two runs.
    let (longer, equal) = call.others.split_at(num_longer - usize::from(position < num_longer));
    let longest_bytes = data.len().div_ceil(members) * size_of::<T>();
    if call.goes_over_hosts(longest_bytes) {
        return gather_over_hosts(call, operation, data);
    }
    let mut slices = split(data, members);
    let own = slices.remove(position);
    let message = call.message(call.others, operation, bytemuck::cast_slice(own));
    let mut slices: Vec<&mut [u8]> = slices.into_iter().map(bytemuck::cast_slice_mut).collect();
    let (longer_slices, equal_slices) = slices.split_at_mut(longer.len());
    call.exchange(longest_bytes, &mut std::iter::once(message), &mut || {
        call.receive_into(longer, operation, longer_slices)?;
        call.receive_into(equal, operation, equal_slices)
    })
}
