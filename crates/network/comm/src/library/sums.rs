//! Sums by the library.

use std::ops::Range;

use mpi::{Collective, Number, Parts};

use super::member::{LibraryMember, NoChunks, Role};
use super::pieces::Piecewise;
use crate::collectives::{Call, Reduction, Sum, WrappingSum};
use crate::error::CommError;
use crate::operation::Operation;
use crate::transport::Chunks;
use device::Element;

/// A sum that a library makes, of what its partial results are.
pub(crate) trait LibrarySum: Reduction {
    /// The type of partial results.
    const NUMBER: Number;
}

impl<E: Element> LibrarySum for Sum<E> {
    const NUMBER: Number = Number::Single;
}

impl LibrarySum for WrappingSum {
    const NUMBER: Number = Number::Integer;
}

impl LibraryMember {
    /// Replaces `data` on every member by the sum of all members' `data`.
    pub(crate) fn all_reduce<R: LibrarySum>(&self, call: &Call, data: &mut [R::Element]) -> Result<(), CommError> {
        let (operation, len) = (Operation::AllReduce, data.len());
        let longest = LibraryMember::longest_piece(1, size_of::<R::Partial>());
        match &self.role {
            Role::Follower { leader } => {
                self.hand_over(call, operation, *leader, bytemuck::cast_slice(data))?;
                self.take_over(call, operation, *leader, bytemuck::cast_slice_mut(data))
            }
            Role::Leader { followers, .. } => {
                self.announce(call, operation, size_of_val(data))?;
                self.with_followers(call, operation, size_of_val(data), &mut |chunks| {
                    self.meet(call, operation, len * size_of::<R::Element>())?;
                    let mut work = WholeSum::<R> { data, chunks, followers: followers.len() };
                    self.in_pieces(call, operation, (len, longest), &mut work)
                })?;
                let message = call.message(followers, operation, bytemuck::cast_slice(data));
                call.exchange(size_of_val(data), &mut std::iter::once(message), &mut || Ok(()))
            }
        }
    }

    /// Replaces slice `position` of `data`, cut into one equal slice per member, by the sum of all members' slices
    /// there. The other slices are unspecified afterwards.
    pub(crate) fn reduce_scatter<R: LibrarySum>(&self, call: &Call, data: &mut [R::Element]) -> Result<(), CommError> {
        let (operation, members) = (Operation::ReduceScatter, call.group.size());
        call.check_equal_slices(operation, data.len())?;
        let slice = data.len() / members;
        let range = |position: usize| position * slice..(position + 1) * slice;
        match &self.role {
            Role::Follower { leader } => {
                self.hand_over(call, operation, *leader, bytemuck::cast_slice(data))?;
                let own = &mut data[range(call.group.position())];
                self.take_over(call, operation, *leader, bytemuck::cast_slice_mut(own))
            }
            Role::Leader { followers, .. } => {
                self.announce(call, operation, size_of_val(data))?;
                let len_bytes = size_of_val(data);
                self.with_followers(call, operation, len_bytes, &mut |chunks| {
                    self.meet(call, operation, len_bytes)?;
                    let longest = LibraryMember::longest_piece(members, size_of::<R::Partial>());
                    let mut work = SlicedSum::<R> { member: self, data, chunks, slice };
                    self.in_pieces(call, operation, (slice, longest), &mut work)
                })?;
                let positions = self.here().iter().skip(1);
                let mut messages = followers.chunks(1).zip(positions).map(|(follower, position)| {
                    call.message(follower, operation, bytemuck::cast_slice(&data[range(*position)]))
                });
                let slice_bytes = slice * size_of::<R::Element>();
                call.exchange(slice_bytes, &mut messages, &mut || Ok(()))
            }
        }
    }

    /// Lends `bytes` to the leader until it has read them.
    pub(super) fn hand_over(
        &self,
        call: &Call,
        operation: Operation,
        leader: mesh::Rank,
        bytes: &[u8],
    ) -> Result<(), CommError> {
        let to = [leader];
        let message = call.message(&to, operation, bytes);
        let handed = call.exchange(bytes.len(), &mut std::iter::once(message), &mut || Ok(()));
        self.of_leader(call, handed)
    }

    /// Receives `bytes` from the leader.
    pub(super) fn take_over(
        &self,
        call: &Call,
        operation: Operation,
        leader: mesh::Rank,
        bytes: &mut [u8],
    ) -> Result<(), CommError> {
        let len_bytes = bytes.len();
        let taken = call.receive(&[leader], operation, len_bytes, &mut |offset, chunks| {
            let piece = chunks.chunk(0);
            bytes[offset..offset + piece.len()].copy_from_slice(piece);
        });
        self.of_leader(call, taken)
    }

    /// Calls `work` once with the buffers of the other members of this process, each of `len_bytes`.
    pub(super) fn with_followers(
        &self,
        call: &Call,
        operation: Operation,
        len_bytes: usize,
        work: &mut dyn FnMut(&dyn Chunks) -> Result<(), CommError>,
    ) -> Result<(), CommError> {
        let Role::Leader { followers, .. } = &self.role else { return Ok(()) };
        if followers.is_empty() || len_bytes == 0 {
            call.receive(followers, operation, len_bytes, &mut |_, _| {})?;
            return work(&NoChunks);
        }
        let mut result = Ok(());
        call.receive(followers, operation, len_bytes, &mut |_, chunks| {
            // Members of one process are threads, whose messages are seen whole.
            assert_eq!(chunks.chunk(0).len(), len_bytes, "a message between threads comes in one piece");
            result = work(chunks);
        })?;
        result
    }
}

/// `partial` becomes the sum of this process's members of elements `range`.
fn add_here<R: Reduction>(
    partial: &mut [R::Partial],
    own: &[R::Element],
    (chunks, followers): (&dyn Chunks, usize),
    range: Range<usize>,
) {
    let width = size_of::<R::Element>();
    for (partial, &own) in partial.iter_mut().zip(&own[range.clone()]) {
        *partial = R::widen(own);
    }
    for follower in 0..followers {
        let bytes = &chunks.chunk(follower)[range.start * width..range.end * width];
        for (partial, element) in partial.iter_mut().zip(bytes.chunks_exact(width)) {
            *partial = R::combine(*partial, R::widen(bytemuck::pod_read_unaligned(element)));
        }
    }
}

/// A sum that every member gets.
struct WholeSum<'a, R: Reduction> {
    data: &'a mut [R::Element],
    chunks: &'a dyn Chunks,
    followers: usize,
}

impl<R: LibrarySum> Piecewise for WholeSum<'_, R> {
    fn collective(&self, piece: &Range<usize>) -> Result<Collective, CommError> {
        Ok(Collective::AllReduce { number: R::NUMBER, len: piece.len() })
    }

    fn fill(&self, piece: &Range<usize>, memory: &mut [u64]) {
        let partial: &mut [R::Partial] = bytemuck::cast_slice_mut(memory);
        add_here::<R>(&mut partial[..piece.len()], self.data, (self.chunks, self.followers), piece.clone());
    }

    fn take(&mut self, piece: &Range<usize>, memory: &[u64]) {
        let sums: &[R::Partial] = bytemuck::cast_slice(memory);
        self.data[piece.clone()].iter_mut().zip(sums).for_each(|(element, sum)| *element = R::round(*sum));
    }
}

/// A sum of which every member gets a slice. The memory has the pieces of all slices, by process.
struct SlicedSum<'a, R: Reduction> {
    member: &'a LibraryMember,
    data: &'a mut [R::Element],
    chunks: &'a dyn Chunks,
    slice: usize,
}

impl<R: LibrarySum> Piecewise for SlicedSum<'_, R> {
    fn collective(&self, piece: &Range<usize>) -> Result<Collective, CommError> {
        let lens = self.member.library.by_process.iter().map(|members| members.len() * piece.len());
        let parts = Parts::new(lens);
        // A piece is shorter than MPI counts.
        let parts = parts.ok_or(CommError::TooManyMembers { members: self.data.len() / self.slice.max(1) })?;
        Ok(Collective::ReduceScatter { number: R::NUMBER, parts })
    }

    fn fill(&self, piece: &Range<usize>, memory: &mut [u64]) {
        let partial: &mut [R::Partial] = bytemuck::cast_slice_mut(memory);
        let followers = self.member.here().len() - 1;
        let members = self.member.library.by_process.iter().flatten();
        for (partial, member) in partial.chunks_mut(piece.len()).zip(members) {
            let first = member * self.slice;
            let range = first + piece.start..first + piece.end;
            add_here::<R>(partial, self.data, (self.chunks, followers), range);
        }
    }

    fn take(&mut self, piece: &Range<usize>, memory: &[u64]) {
        let sums: &[R::Partial] = bytemuck::cast_slice(memory);
        for (sums, member) in sums.chunks(piece.len()).zip(self.member.here()) {
            let first = member * self.slice;
            let elements = &mut self.data[first + piece.start..first + piece.end];
            elements.iter_mut().zip(sums).for_each(|(element, sum)| *element = R::round(*sum));
        }
    }
}
