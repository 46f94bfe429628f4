//! Collective operations, written once over any transport.
//!
//! All of them are direct: each member talks to each other member, and what is to be summed is
//! folded from the peers' memory by the one member that owns the slice. A sum is taken in rank
//! order, `((x0 + x1) + x2) + ...`, for every element, however the buffer is cut into slices,
//! blocks or staged pieces. Over n members a large all-reduce moves `2 (n - 1) / n` of its bytes
//! out of each rank, which is the least possible.
//!
//! Every member of the group makes the same calls in the same order, each with its own fresh tag.

mod all_gather;
mod all_reduce;
mod barrier;
mod broadcast;
mod reduce_scatter;
mod reduction;
mod slices;
mod traffic;

pub use all_gather::all_gather;
pub use all_reduce::all_reduce;
pub use barrier::barrier;
pub use broadcast::broadcast;
pub use reduce_scatter::reduce_scatter;
pub use reduction::{Max, Reduction, Sum, WrappingSum};
pub use traffic::{Traffic, traffic};

use crate::error::CommError;
use crate::operation::Operation;
use crate::tag::Tag;
use crate::transport::{Chunks, Message, Transport};
use mesh::{Group, Rank};

/// Messages up to this length are copied rather than lent: the sender need not wait for its readers
/// then, and one wait fewer is worth more than a copy that stays in cache.
pub const COPY_LIMIT_BYTES: usize = 16 * 1024;

/// One call of a collective: who takes part, over what, under which name.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// This rank's end of the world.
    pub transport: &'a dyn Transport,
    /// The members and this rank's position among them.
    pub group: &'a Group,
    /// The members without this rank, in rank order.
    pub others: &'a [Rank],
    /// The name of this call, the same on every member and fresh.
    pub tag: Tag,
}

impl Call<'_> {
    fn receive(
        &self,
        from: &[Rank],
        operation: Operation,
        len_bytes: usize,
        fold: &mut dyn FnMut(usize, &dyn Chunks),
    ) -> Result<(), CommError> {
        self.transport.receive(from, self.tag, operation, len_bytes, fold)
    }

    fn message<'a>(&self, to: &'a [Rank], operation: Operation, bytes: &'a [u8]) -> Message<'a> {
        Message { to, tag: self.tag, operation, bytes }
    }

    /// Sends `messages` the cheaper way for their length and runs `during`, which receives.
    fn exchange<'a>(
        &self,
        longest_bytes: usize,
        messages: &mut dyn Iterator<Item = Message<'a>>,
        during: &mut dyn FnMut() -> Result<(), CommError>,
    ) -> Result<(), CommError> {
        if longest_bytes <= COPY_LIMIT_BYTES {
            for message in messages {
                self.transport.post_copy(message)?;
            }
            during()
        } else {
            self.transport.lend(messages, during)
        }
    }

    /// Whether a buffer of `len` elements has an equal slice for each member.
    fn check_equal_slices(&self, operation: Operation, len: usize) -> Result<(), CommError> {
        let members = self.group.size();
        if len.is_multiple_of(members) {
            return Ok(());
        }
        Err(CommError::UnequalSlices { rank: self.group.rank(), operation, len, members })
    }
}
