//! Collective operations, written once over any transport.
//!
//! On one host all of them are direct: each member talks to each other member, and what is to be
//! summed is folded from the peers' memory by the one member that owns the slice. A sum is taken in
//! rank order, `((x0 + x1) + x2) + ...`, for every element, however the buffer is cut into slices,
//! blocks or staged pieces. Over n members a large all-reduce moves `2 (n - 1) / n` of its bytes
//! out of each rank, which is the least possible.
//!
//! In a large group the first member combines short all-reduces and barriers ([`DIRECT_MEMBERS`]), so that messages do
//! not grow with the square of the members.
//!
//! Between hosts fewer bytes are to move. A slice that every member gets goes to each host once and
//! is passed on inside it: large gathers, the gathering half of an all-reduce and broadcasts. A sum may
//! be taken in runs of neighbours ([`SumTree`](device::SumTree)), of which only one partial sum
//! leaves: its order is that of the tree on every transport and for every map of hosts. [`traffic`]
//! says how many bytes go where.
//!
//! Every member of the group makes the same calls in the same order, each with its own fresh tag.

mod all_gather;
mod all_reduce;
mod all_to_all;
mod barrier;
mod broadcast;
mod over_first;
mod over_hosts;
mod reduce_scatter;
mod reduction;
mod runs;
mod shift;
mod slices;
mod traffic;

pub use all_gather::all_gather;
pub use all_reduce::{all_reduce, all_reduce_in_runs};
pub use all_to_all::all_to_all;
pub use barrier::barrier;
pub use broadcast::broadcast;
pub use over_first::DIRECT_MEMBERS;
pub use reduce_scatter::{reduce_scatter, reduce_scatter_in_runs};
pub use reduction::{Max, Reduction, Sum, WrappingSum};
pub use shift::shift;
pub use traffic::{CollectiveShape, HostTraffic, Traffic, traffic};

use crate::error::CommError;
use crate::host_map::GroupHosts;
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
    /// Where the members are.
    pub hosts: &'a GroupHosts,
    /// The name of this call, the same on every member and fresh.
    pub tag: Tag,
}

impl Call<'_> {
    pub(crate) fn receive(
        &self,
        from: &[Rank],
        operation: Operation,
        len_bytes: usize,
        fold: &mut dyn FnMut(usize, &dyn Chunks),
    ) -> Result<(), CommError> {
        self.transport.receive(from, self.tag, operation, len_bytes, fold)
    }

    /// Receives as [`Call::receive`] does, where the bytes of each sender replace a slice of `into`.
    pub(crate) fn receive_into(
        &self,
        from: &[Rank],
        operation: Operation,
        into: &mut [&mut [u8]],
    ) -> Result<(), CommError> {
        self.transport.receive_into(from, self.tag, operation, into)
    }

    pub(crate) fn message<'a>(&self, to: &'a [Rank], operation: Operation, bytes: &'a [u8]) -> Message<'a> {
        Message { to, tag: self.tag, operation, bytes }
    }

    /// Sends `messages` the cheaper way for their length and runs `during`, which receives.
    pub(crate) fn exchange<'a>(
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

    /// Whether slices of at most `longest_bytes` go to each host once. The same on every member.
    fn goes_over_hosts(&self, longest_bytes: usize) -> bool {
        longest_bytes > COPY_LIMIT_BYTES && self.hosts.is_hierarchical()
    }

    /// Whether a buffer of `len` elements has an equal slice for each member.
    pub(crate) fn check_equal_slices(&self, operation: Operation, len: usize) -> Result<(), CommError> {
        let members = self.group.size();
        if len.is_multiple_of(members) {
            return Ok(());
        }
        Err(CommError::UnequalSlices { rank: self.group.rank(), operation, len, members })
    }
}
