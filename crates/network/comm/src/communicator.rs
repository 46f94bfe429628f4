//! The collectives of one group, as layers and the executor see them.

use crate::collectives::{self, Call, Max, Sum, WrappingSum, exchange};
use crate::error::CommError;
use crate::host_map::{GroupHosts, HostMap};
use crate::library::{LibraryGroup, LibraryMember};
use crate::tag::{ChannelId, Tag};
use crate::transport::Transport;
use bytemuck::Pod;
use device::{Element, SumTree};
use mesh::{Group, Rank};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The collectives of one group of ranks over a transport, on slices.
///
/// Every member makes the same calls in the same order with buffers of the same length. A call
/// returns when this rank's buffer holds the result and no other rank reads it any more. Sums are in
/// rank order, or in that of a [`SumTree`] where one is given. In a group of one every call leaves the buffer as it is,
/// and an all-to-all or a ring shift copies it.
///
/// # Errors
/// Every collective fails when a peer failed, left, missed the deadline or made another call. The
/// buffer then holds no meaningful values.
pub struct GroupCommunicator {
    transport: Arc<dyn Transport>,
    group: Group,
    others: Vec<Rank>,
    hosts: GroupHosts,
    channel: ChannelId,
    /// How many collectives were called: the number of the next one's tag.
    calls: AtomicU64,
    /// The part of a library that makes these collectives.
    library: Option<LibraryMember>,
}

impl GroupCommunicator {
    /// The communicator of `group`, which is seen from the rank of `transport`. All members give
    /// the same `hosts`, and the same `channel`, which no other group that shares two of them may have.
    pub fn new(transport: Arc<dyn Transport>, group: Group, hosts: &HostMap, channel: ChannelId) -> GroupCommunicator {
        assert_eq!(group.rank(), transport.rank(), "the group is seen from another rank");
        let own = group.rank();
        let others = group.members().iter().copied().filter(|&rank| rank != own);
        let (others, hosts) = (others.collect(), hosts.of_group(&group));
        GroupCommunicator { others, hosts, transport, group, channel, calls: AtomicU64::new(0), library: None }
    }

    /// The same, whose collectives are those of a library among processes; all members give the same. Maxima stay
    /// pleach's own, and so do ring shifts, which are messages, and sums that [`LibrarySums`](crate::LibrarySums)
    /// leaves in rank order. A [`SumTree`] has no
    /// effect on the others, and after a reduce-scatter the other slices are unspecified.
    #[must_use]
    pub fn with_library(self, library: LibraryGroup) -> GroupCommunicator {
        let library = LibraryMember::new(library, &self.group);
        GroupCommunicator { library, ..self }
    }

    /// The library for sums of real numbers.
    fn adds_reals(&self) -> Option<&LibraryMember> {
        self.library.as_ref().filter(|library| library.adds_reals())
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
            hosts: &self.hosts,
            tag: Tag { channel: self.channel, number: self.calls.fetch_add(1, Ordering::Relaxed) },
        }
    }
}

impl GroupCommunicator {
    /// The number of members.
    pub fn size(&self) -> usize {
        self.group.size()
    }

    /// The place of this rank among the members.
    pub fn position(&self) -> usize {
        self.group.position()
    }

    /// Replaces `data` by the sum of all members' `data`, taken in `f32` and rounded once where `data` is narrow.
    ///
    /// # Errors
    /// See the type.
    pub fn all_reduce_sum<E: Element>(&self, data: &mut [E]) -> Result<(), CommError> {
        match self.adds_reals() {
            Some(library) => library.all_reduce::<Sum<E>>(&self.next_call(), data),
            None => collectives::all_reduce::<Sum<E>>(&self.next_call(), data),
        }
    }

    /// Replaces every element by the largest of all members' elements; not-a-number wins.
    ///
    /// # Errors
    /// See the type.
    pub fn all_reduce_max(&self, data: &mut [f32]) -> Result<(), CommError> {
        collectives::all_reduce::<Max>(&self.next_call(), data)
    }

    /// Sums as [`GroupCommunicator::all_reduce_sum`] does, single-precision numbers only, in the order of `tree`.
    ///
    /// # Errors
    /// See the type.
    pub fn all_reduce_in_runs(&self, data: &mut [f32], tree: SumTree) -> Result<(), CommError> {
        match self.adds_reals() {
            Some(library) => library.all_reduce::<Sum>(&self.next_call(), data),
            None => collectives::all_reduce_in_runs::<Sum>(&self.next_call(), data, tree),
        }
    }

    /// Replaces `data` by the sum of all members' `data` modulo 2^64, which has the same bits by every `tree`, and its
    /// traffic.
    ///
    /// # Errors
    /// See the type.
    pub fn all_reduce_integers_in_runs(&self, data: &mut [i64], tree: SumTree) -> Result<(), CommError> {
        match &self.library {
            Some(library) => library.all_reduce::<WrappingSum>(&self.next_call(), data),
            None => collectives::all_reduce_in_runs::<WrappingSum>(&self.next_call(), data, tree),
        }
    }

    /// Replaces slice `position` of `data`, cut into `size` equal slices, by the sum of all members'
    /// slices there. The other slices keep their values. The size must divide the length.
    ///
    /// # Errors
    /// See the type.
    pub fn reduce_scatter<E: Element>(&self, data: &mut [E]) -> Result<(), CommError> {
        match self.adds_reals() {
            Some(library) => library.reduce_scatter::<Sum<E>>(&self.next_call(), data),
            None => collectives::reduce_scatter::<Sum<E>>(&self.next_call(), data),
        }
    }

    /// Reduces as [`GroupCommunicator::reduce_scatter`] does, single-precision numbers only, in the order of `tree`.
    /// The other slices are unspecified afterwards where that is not rank order.
    ///
    /// # Errors
    /// See the type.
    pub fn reduce_scatter_in_runs(&self, data: &mut [f32], tree: SumTree) -> Result<(), CommError> {
        match self.adds_reals() {
            Some(library) => library.reduce_scatter::<Sum>(&self.next_call(), data),
            None => collectives::reduce_scatter_in_runs::<Sum>(&self.next_call(), data, tree),
        }
    }

    /// Reduces as [`GroupCommunicator::reduce_scatter_in_runs`] does, for sums modulo 2^64: the same bits whatever
    /// `tree` is.
    ///
    /// # Errors
    /// See the type.
    pub fn reduce_scatter_integers_in_runs(&self, data: &mut [i64], tree: SumTree) -> Result<(), CommError> {
        match &self.library {
            Some(library) => library.reduce_scatter::<WrappingSum>(&self.next_call(), data),
            None => collectives::reduce_scatter_in_runs::<WrappingSum>(&self.next_call(), data, tree),
        }
    }

    /// Fills the other members' slices of `data`, cut into `size` equal slices. The size must divide
    /// the length.
    ///
    /// # Errors
    /// See the type.
    pub fn all_gather<E: Pod>(&self, data: &mut [E]) -> Result<(), CommError> {
        match &self.library {
            Some(library) => library.all_gather(&self.next_call(), data),
            None => collectives::all_gather(&self.next_call(), data),
        }
    }

    /// Fills slice `p` of `to`, for every `p`, with slice `position` of the `from` of the member at `p`. Both are cut
    /// into
    /// `size` equal slices and have one length, which the size must divide.
    ///
    /// # Errors
    /// See the type.
    pub fn all_to_all<E: Pod>(&self, from: &[E], to: &mut [E]) -> Result<(), CommError> {
        match &self.library {
            Some(library) => library.all_to_all(&self.next_call(), from, to),
            None => exchange::all_to_all(&self.next_call(), from, to),
        }
    }

    /// Fills the first `gotten[p]` bytes of slice `p` of `to`, for every `p`, with the first of slice `position` of the
    /// `from` of the member at `p`, which gives as many; `given` are the numbers of this member. Both buffers are cut
    /// into `size` equal slices and have one length. A library exchanges whole slices.
    ///
    /// # Errors
    /// See the type.
    pub fn exchange_parts(
        &self,
        (from, given): (&[u8], &[usize]),
        (to, gotten): (&mut [u8], &[usize]),
    ) -> Result<(), CommError> {
        match &self.library {
            Some(library) => library.all_to_all(&self.next_call(), from, to),
            None => exchange::exchange_parts(&self.next_call(), (from, given), (to, gotten)),
        }
    }

    /// Replaces `to` by the `from` of the previous member, counted round. Both have one length, the same on all
    /// members.
    ///
    /// # Errors
    /// See the type.
    pub fn shift<E: Pod>(&self, from: &[E], to: &mut [E]) -> Result<(), CommError> {
        exchange::shift(&self.next_call(), from, to)
    }

    /// Returns when every member has called it.
    ///
    /// # Errors
    /// See the type.
    pub fn barrier(&self) -> Result<(), CommError> {
        match &self.library {
            Some(library) => library.barrier(&self.next_call()),
            None => collectives::barrier(&self.next_call()),
        }
    }
}
