//! Moves from members to members: a slice of each for each, and every buffer on to the next.

use super::Call;
use super::over_hosts::split;
use super::slices::member_of_other;
use crate::error::CommError;
use bytemuck::Pod;
use device::Operation;

/// Fills slice `p` of `to`, for every `p`, with slice `position` of the `from` of the member at `p`: buffers of one
/// length, cut into one equal slice per member. Slices differ by receiver, so each goes straight there, between hosts
/// too.
///
/// # Errors
/// A length that the group does not divide; a peer that failed, left, is late, or calls something
/// else.
///
/// # Panics
/// The two buffers differ in length.
pub fn all_to_all<T: Pod>(call: &Call, from: &[T], to: &mut [T]) -> Result<(), CommError> {
    let (operation, position, members) = (Operation::AllToAll, call.group.position(), call.group.size());
    call.check_equal_slices(operation, from.len())?;
    assert_eq!(from.len(), to.len(), "both buffers of an all-to-all have one length");
    let len = from.len() / members;
    let outgoing = |member: usize| &from[member * len..(member + 1) * len];
    let mut slices = split(to, members);
    slices.remove(position).copy_from_slice(outgoing(position));
    if call.others.is_empty() {
        return Ok(());
    }
    let mut messages = call.others.chunks(1).enumerate().map(|(index, peer)| {
        call.message(peer, operation, bytemuck::cast_slice(outgoing(member_of_other(index, position))))
    });
    let mut slices: Vec<&mut [u8]> = slices.into_iter().map(bytemuck::cast_slice_mut).collect();
    call.exchange(len * size_of::<T>(), &mut messages, &mut || call.receive_into(call.others, operation, &mut slices))
}

/// Fills the first `gotten[p]` bytes of slice `p` of `to`, for every `p`, with the first of slice `position` of the
/// `from` of the member at `p`: as [`all_to_all`], of parts of slices. The other bytes of `to` stay as they are.
/// Members send each other messages without bytes, too, so that a member with another number is found.
///
/// # Errors
/// A length that the group does not divide; a peer that failed, left, is late, calls something else, or gives another
/// number of bytes.
///
/// # Panics
/// The two buffers differ in length; a number is not that of a part of a slice.
pub fn exchange_parts(
    call: &Call,
    (from, given): (&[u8], &[usize]),
    (to, gotten): (&mut [u8], &[usize]),
) -> Result<(), CommError> {
    let (operation, position, members) = (Operation::AllToAll, call.group.position(), call.group.size());
    call.check_equal_slices(operation, from.len())?;
    assert_eq!(from.len(), to.len(), "both buffers of an all-to-all have one length");
    assert_eq!([given.len(), gotten.len()], [members; 2], "a number for each member");
    let len = from.len() / members;
    let outgoing = |member: usize| &from[member * len..][..given[member]];
    let slices = split(to, members).into_iter().zip(gotten);
    let mut slices: Vec<&mut [u8]> = slices.map(|(slice, gotten)| &mut slice[..*gotten]).collect();
    slices.remove(position).copy_from_slice(outgoing(position));
    if call.others.is_empty() {
        return Ok(());
    }
    let outgoing = |index: usize| outgoing(member_of_other(index, position));
    let longest_bytes = (0..call.others.len()).map(|index| outgoing(index).len()).max().unwrap_or(0);
    let mut messages =
        call.others.chunks(1).enumerate().map(|(index, peer)| call.message(peer, operation, outgoing(index)));
    call.exchange(longest_bytes, &mut messages, &mut || {
        let mut from_peers = call.others.chunks(1).zip(slices.chunks_mut(1));
        from_peers.try_for_each(|(peer, slice)| call.receive_into(peer, operation, slice))
    })
}

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
