//! The collectives of one group, as layers and the executor see them.

use crate::collectives::{self, Call, Max, Sum, WrappingSum};
use crate::error::CommError;
use crate::tag::{ChannelId, Tag};
use crate::transport::Transport;
use mesh::{Group, Rank};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The collectives of one group of ranks.
///
/// Every member makes the same calls in the same order with buffers of the same length. A call
/// returns when this rank's buffer holds the result and no other rank reads it any more. Sums are in
/// rank order. In a group of one every call leaves the buffer as it is.
///
/// # Errors
/// Every method fails when a peer failed, left, missed the deadline or made another call. The
/// buffer then holds no meaningful values.
pub trait Communicator: Send {
    /// The number of members.
    fn size(&self) -> usize;

    /// The place of this rank among the members.
    fn position(&self) -> usize;

    /// Replaces `data` by the sum of all members' `data`.
    fn all_reduce_sum(&self, data: &mut [f32]) -> Result<(), CommError>;

    /// Replaces every element by the largest of all members' elements; not-a-number wins.
    fn all_reduce_max(&self, data: &mut [f32]) -> Result<(), CommError>;

    /// Replaces `data` by the sum of all members' `data` modulo 2^64.
    fn all_reduce_integers(&self, data: &mut [i64]) -> Result<(), CommError>;

    /// Replaces slice `position` of `data`, cut into `size` equal slices, by the sum of all members'
    /// slices there. The other slices keep their values. The size must divide the length.
    fn reduce_scatter(&self, data: &mut [f32]) -> Result<(), CommError>;

    /// Fills the other members' slices of `data`, cut into `size` equal slices. The size must divide
    /// the length.
    fn all_gather(&self, data: &mut [f32]) -> Result<(), CommError>;

    /// Replaces `data` by that of the member at position `root`.
    fn broadcast(&self, root: usize, data: &mut [f32]) -> Result<(), CommError>;

    /// Replaces `bytes` by those of the member at position `root`.
    fn broadcast_bytes(&self, root: usize, bytes: &mut [u8]) -> Result<(), CommError>;

    /// Fills the other members' slices of `bytes`, cut into `size` equal slices. The size must
    /// divide the length.
    fn all_gather_bytes(&self, bytes: &mut [u8]) -> Result<(), CommError>;

    /// Returns when every member has called it.
    fn barrier(&self) -> Result<(), CommError>;
}

/// The communicator of a group over a transport.
pub struct GroupCommunicator {
    transport: Arc<dyn Transport>,
    group: Group,
    others: Vec<Rank>,
    channel: ChannelId,
    /// How many collectives were called: the number of the next one's tag.
    calls: AtomicU64,
}

impl GroupCommunicator {
    /// The communicator of `group`, which is seen from the rank of `transport`. All members give
    /// the same `channel`, and no other group that shares two of them may have it.
    pub fn new(transport: Arc<dyn Transport>, group: Group, channel: ChannelId) -> GroupCommunicator {
        assert_eq!(group.rank(), transport.rank(), "the group is seen from another rank");
        let own = group.rank();
        let others = group.members().iter().copied().filter(|&rank| rank != own);
        GroupCommunicator { others: others.collect(), transport, group, channel, calls: AtomicU64::new(0) }
    }

    /// The members.
    pub fn group(&self) -> &Group {
        &self.group
    }

    fn next_call(&self) -> Call<'_> {
        Call {
            transport: &*self.transport,
            group: &self.group,
            others: &self.others,
            tag: Tag { channel: self.channel, number: self.calls.fetch_add(1, Ordering::Relaxed) },
        }
    }
}

impl Communicator for GroupCommunicator {
    fn size(&self) -> usize {
        self.group.size()
    }

    fn position(&self) -> usize {
        self.group.position()
    }

    fn all_reduce_sum(&self, data: &mut [f32]) -> Result<(), CommError> {
        collectives::all_reduce::<Sum>(&self.next_call(), data)
    }

    fn all_reduce_max(&self, data: &mut [f32]) -> Result<(), CommError> {
        collectives::all_reduce::<Max>(&self.next_call(), data)
    }

    fn all_reduce_integers(&self, data: &mut [i64]) -> Result<(), CommError> {
        collectives::all_reduce::<WrappingSum>(&self.next_call(), data)
    }

    fn reduce_scatter(&self, data: &mut [f32]) -> Result<(), CommError> {
        collectives::reduce_scatter::<Sum>(&self.next_call(), data)
    }

    fn all_gather(&self, data: &mut [f32]) -> Result<(), CommError> {
        collectives::all_gather(&self.next_call(), data)
    }

    fn broadcast(&self, root: usize, data: &mut [f32]) -> Result<(), CommError> {
        collectives::broadcast(&self.next_call(), root, data)
    }

    fn broadcast_bytes(&self, root: usize, bytes: &mut [u8]) -> Result<(), CommError> {
        collectives::broadcast(&self.next_call(), root, bytes)
    }

    fn all_gather_bytes(&self, bytes: &mut [u8]) -> Result<(), CommError> {
        collectives::all_gather(&self.next_call(), bytes)
    }

    fn barrier(&self) -> Result<(), CommError> {
        collectives::barrier(&self.next_call())
    }
}
