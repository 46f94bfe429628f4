//! Moving slices between hosts once, and inside each host from there.
//!
//! A member sends what everybody gets to one member of each other host ([`GroupHosts::relays_of`]), which sends it on
//! to the other members there. A relay reads from the place where the bytes belong, so there is no memory but the
//! buffer.

use super::Call;
use crate::error::CommError;
use crate::host_map::GroupHosts;
use bytemuck::Pod;
use device::Operation;
use mesh::{Rank, even_split};
use std::mem::take;

/// Fills the slices of the other members in `data`: see [`all_gather`](super::all_gather).
pub(super) fn gather_over_hosts<T: Pod>(call: &Call, operation: Operation, data: &mut [T]) -> Result<(), CommError> {
    let (position, members) = (call.group.position(), call.group.size());
    let len = data.len();
    let mut slices = split(data, members);
    let own: &mut [T] = take(&mut slices[position]);
    let mates = mates(call.hosts, position);
    // From members of this host their own slices, from those on other hosts the slices for which this one is the relay.
    let sources: Vec<usize> = (0..members)
        .filter(|&source| source != position)
        .filter(|&source| mates.contains(&source) || call.hosts.relay_for(source, position) == position)
        .collect();
    let receivers = ranks(call, mates.iter().copied().chain(call.hosts.relays_of(position)));
    let mate_ranks = ranks(call, mates.iter().copied());
    let message = call.message(&receivers, operation, bytemuck::cast_slice(own));
    call.transport.lend(&mut std::iter::once(message), &mut || {
        // The members with a longer slice come first.
        let (longer, equal) = sources.split_at(sources.partition_point(|&source| source < len % members));
        receive_slices(call, operation, longer, &mut slices)?;
        receive_slices(call, operation, equal, &mut slices)?;
        let relayed = sources.iter().filter(|&&source| !call.hosts.share_host(source, position));
        let relayed: Vec<&[T]> = relayed.map(|&source| &*take(&mut slices[source])).collect();
        let mut messages =
            relayed.iter().map(|slice| call.message(&mate_ranks, operation, bytemuck::cast_slice(slice)));
        call.transport.lend(&mut messages, &mut || {
            for &relay in &mates {
                // In the order in which the relay sends them.
                let elsewhere = (0..members).filter(|&source| !call.hosts.share_host(source, position));
                for source in elsewhere.filter(|&source| call.hosts.relay_for(source, position) == relay) {
                    receive_whole(call, operation, relay, slices[source])?;
                }
            }
            Ok(())
        })
    })
}

/// `data` as one slice per member, as even as possible, the longer ones first.
pub(super) fn split<T>(mut data: &mut [T], members: usize) -> Vec<&mut [T]> {
    let lens: Vec<usize> = (0..members).map(|member| even_split(data.len(), members, member).len()).collect();
    let next = |len: usize| {
        let (slice, rest) = take(&mut data).split_at_mut(len);
        data = rest;
        slice
    };
    lens.into_iter().map(next).collect()
}

/// The other members on the host of `position`.
fn mates(hosts: &GroupHosts, position: usize) -> Vec<usize> {
    hosts.on_host_of(position).iter().copied().filter(|&member| member != position).collect()
}

/// The ranks at these positions.
fn ranks(call: &Call, positions: impl Iterator<Item = usize>) -> Vec<Rank> {
    positions.filter_map(|position| call.group.member(position)).collect()
}

/// Receives from each of `sources` its own slice; all have one length.
fn receive_slices<T: Pod>(
    call: &Call,
    operation: Operation,
    sources: &[usize],
    slices: &mut [&mut [T]],
) -> Result<(), CommError> {
    let Some(&first) = sources.first() else {
        return Ok(());
    };
    let len_bytes = size_of_val(slices[first]);
    let from = ranks(call, sources.iter().copied());
    call.receive(&from, operation, len_bytes, &mut |offset, chunks| {
        for (index, &source) in sources.iter().enumerate() {
            fill(slices[source], offset, chunks.chunk(index));
        }
    })
}

/// Receives one message of the member at `from` as long as `slice`.
fn receive_whole<T: Pod>(call: &Call, operation: Operation, from: usize, slice: &mut [T]) -> Result<(), CommError> {
    let from = ranks(call, std::iter::once(from));
    call.receive_into(&from, operation, &mut [bytemuck::cast_slice_mut(slice)])
}

fn fill<T: Pod>(slice: &mut [T], offset: usize, piece: &[u8]) {
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(slice);
    bytes[offset..offset + piece.len()].copy_from_slice(piece);
}
