//! Every member's slice on every member.

use super::Call;
use super::over_hosts::gather_over_hosts;
use super::slices::{OtherSlices, cut, member_of_other};
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

/// As [`all_gather`], for slices that may differ by one element.
pub(super) fn gather_slices<T: Pod>(call: &Call, operation: Operation, data: &mut [T]) -> Result<(), CommError> {
    if call.others.is_empty() {
        return Ok(());
    }
    let (position, members) = (call.group.position(), call.group.size());
    let (shorter, longer_slices) = (data.len() / members, data.len() % members);
    // The members with a longer slice come first, so the others split in two runs.
    let (longer, equal) = call.others.split_at(longer_slices - usize::from(position < longer_slices));
    let longest_bytes = data.len().div_ceil(members) * size_of::<T>();
    if call.goes_over_hosts(longest_bytes) {
        return gather_over_hosts(call, operation, data);
    }
    let (own, mut slices) = cut(data, members, position);
    let message = call.message(call.others, operation, bytemuck::cast_slice(own));
    call.exchange(longest_bytes, &mut std::iter::once(message), &mut || {
        let runs = [(0, longer, shorter + 1), (longer.len(), equal, shorter)];
        for (first, from, len) in runs {
            let len_bytes = len * size_of::<T>();
            call.receive(from, operation, len_bytes, &mut |offset, chunks| {
                for index in 0..from.len() {
                    let piece = chunks.chunk(index);
                    fill(&mut slices, member_of_other(first + index, position), offset, piece);
                }
            })?;
        }
        Ok(())
    })
}

fn fill<T: Pod>(slices: &mut OtherSlices<'_, T>, member: usize, offset: usize, piece: &[u8]) {
    let slice: &mut [u8] = bytemuck::cast_slice_mut(slices.get_mut(member));
    slice[offset..offset + piece.len()].copy_from_slice(piece);
}
