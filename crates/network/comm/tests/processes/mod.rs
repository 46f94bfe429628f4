//! Worlds of several processes: what ranks in one process cannot show.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

mod corruption;
mod failures;
mod flow;
mod forked;
mod relay;
mod strangers;

use comm::{ChannelId, GroupCommunicator, HostMap, Operation, Tag, ThreadTransport, Timeouts, Transport};
use mesh::{Axis, AxisSet, AxisSizes, Mesh};
use std::sync::Arc;
use std::time::Duration;

/// A deadline that no healthy test meets, however busy the machine.
const PATIENT: Timeouts = Timeouts::new(Duration::from_secs(120));

/// The communicator of the whole world on use number `usage`.
fn communicator(end: ThreadTransport, usage: u16) -> GroupCommunicator {
    let sizes = AxisSizes { tp: end.world_size(), ..AxisSizes::ONE };
    let group = Mesh::new(sizes).unwrap().group(end.rank(), Axis::Tp);
    GroupCommunicator::new(Arc::new(end), group, &HostMap::one_host(), ChannelId::new(AxisSet::of(Axis::Tp), usage))
}

fn tag(number: u64) -> Tag {
    Tag { channel: ChannelId::new(AxisSet::ALL, 3), number }
}

/// Receives a message as long as `expected` and compares it.
fn receive(end: &ThreadTransport, from: usize, number: u64, expected: &[u8]) -> Result<(), comm::CommError> {
    let mut bytes = vec![0; expected.len()];
    let from = [mesh::Rank(from)];
    end.receive(&from, tag(number), Operation::PointToPoint, expected.len(), &mut |offset, chunks| {
        let piece = chunks.chunk(0);
        bytes[offset..offset + piece.len()].copy_from_slice(piece);
    })?;
    assert!(bytes == expected, "message {number} is wrong");
    Ok(())
}
