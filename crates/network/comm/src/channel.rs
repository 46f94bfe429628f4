//! Point-to-point messages between the members of a group.

use crate::error::CommError;
use crate::tag::{ChannelId, Tag};
use crate::transport::{Loan, Message, SendHandle, Transport};
use bytemuck::Pod;
use device::Operation;
use mesh::{Group, Rank};
use std::sync::Arc;

const OPERATION: Operation = Operation::PointToPoint;

/// Sends and receives between the members of a group, such as the stages of a pipeline.
///
/// Sends never block. Messages of the same number between the same two members arrive in the order
/// sent; those of different numbers can be received in any order.
pub struct Channel {
    transport: Arc<dyn Transport>,
    group: Group,
    channel: ChannelId,
}

impl Channel {
    /// The channel of `group`, which is seen from the rank of `transport`. All members give the
    /// same `channel`, and no other group or communicator that shares two of them may have it.
    pub fn new(transport: Arc<dyn Transport>, group: Group, channel: ChannelId) -> Channel {
        assert_eq!(group.rank(), transport.rank(), "the group is seen from another rank");
        Channel { transport, group, channel }
    }

    /// The members.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Sends a copy of `data` to the member at position `to`; `data` may change at once. The copy is outside of the
    /// caller's memory until it is received.
    ///
    /// # Errors
    /// A position outside the group; a peer that failed or left.
    pub fn post_send<T: Pod>(&self, to: usize, number: u64, data: &[T]) -> Result<(), CommError> {
        let to = [self.peer(to)?];
        self.transport.post_copy(Message {
            to: &to,
            tag: self.tag(number),
            operation: OPERATION,
            bytes: bytemuck::cast_slice(data),
        })
    }

    /// Sends `loan` to the member at position `to` without copying. Its bytes must not change until
    /// [`Channel::wait`] has returned, or [`Channel::is_complete`] has returned true.
    ///
    /// # Errors
    /// A position outside the group; a peer that failed or left.
    pub fn post_loan(&self, to: usize, number: u64, loan: Loan) -> Result<SendHandle, CommError> {
        let to = self.peer(to)?;
        self.transport.post_loan(to, self.tag(number), OPERATION, loan)
    }

    /// Whether the receiver has read all of a loan.
    pub fn is_complete(&self, send: SendHandle) -> bool {
        self.transport.is_complete(send)
    }

    /// Waits until nobody reads a loan any more.
    ///
    /// # Errors
    /// A receiver that failed, left or is late; the loan is taken back then.
    pub fn wait(&self, send: SendHandle) -> Result<(), CommError> {
        self.transport.wait_send(send)
    }

    /// Waits for the message of `number` from the member at position `from`, as long as `data`, and
    /// replaces `data` by it.
    ///
    /// # Errors
    /// A position outside the group; a peer that failed, left, is late, or sent another length.
    pub fn receive<T: Pod>(&self, from: usize, number: u64, data: &mut [T]) -> Result<(), CommError> {
        let from = [self.peer(from)?];
        self.transport.receive_into(&from, self.tag(number), OPERATION, &mut [bytemuck::cast_slice_mut(data)])
    }

    fn peer(&self, position: usize) -> Result<Rank, CommError> {
        self.group.member(position).ok_or_else(|| CommError::NoSuchPosition {
            rank: self.group.rank(),
            position,
            members: self.group.size(),
        })
    }

    fn tag(&self, number: u64) -> Tag {
        Tag { channel: self.channel, number }
    }
}
