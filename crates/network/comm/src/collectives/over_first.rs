//! Short all-reduces and barriers of large groups, by way of the first member.
//!
//! If each of n members sends to each other one, a call takes n (n - 1) messages: a million for the norm of 1,024
//! ranks. Here all send to the first member, which combines in rank order and sends the result to all: 2 (n - 1)
//! messages, two waits instead of one, and the same bits.

use super::Call;
use crate::error::CommError;
use crate::transport::Chunks;
use bytemuck::Pod;
use device::Operation;

/// Members up to which each sends to each other one. A wait costs as much as about this many messages.
pub const DIRECT_MEMBERS: usize = 32;

/// Whether short messages of a group with this number of members go to the first one.
pub(super) const fn goes_over_first(members: usize) -> bool {
    members > DIRECT_MEMBERS
}

/// Replaces `data` by the combination of all members' `data`. `fold` is that of the first member: it takes the whole
/// buffer, the position, the number of other members, the offset in bytes and the chunks.
pub(super) fn reduce_over_first<E: Pod>(
    call: &Call,
    operation: Operation,
    data: &mut [E],
    fold: impl Fn(&mut [E], usize, usize, usize, &dyn Chunks),
) -> Result<(), CommError> {
    let len_bytes = size_of_val(data);
    let others = call.others.len();
    if call.group.position() == 0 {
        call.receive(call.others, operation, len_bytes, &mut |offset, chunks| fold(data, 0, others, offset, chunks))?;
        return call.transport.post_copy(call.message(call.others, operation, bytemuck::cast_slice(data)));
    }
    // The first of the others is the first member.
    let first = &call.others[..1];
    call.transport.post_copy(call.message(first, operation, bytemuck::cast_slice(data)))?;
    let data: &mut [u8] = bytemuck::cast_slice_mut(data);
    let mut receive = || {
        call.receive(first, operation, len_bytes, &mut |offset, chunks| {
            let piece = chunks.chunk(0);
            data[offset..offset + piece.len()].copy_from_slice(piece);
        })
    };
    match receive() {
        // Only the first member sees which one is late. It may have come here up to a deadline later, and reports by
        // its own.
        Err(CommError::Deadline { .. }) => receive(),
        received => received,
    }
}
