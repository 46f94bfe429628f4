//! All-to-alls by the library: each process sends each other one what its members have for the members there.

use std::ops::Range;

use bytemuck::Pod;
use mpi::{Collective, Parts};

use super::member::{LibraryMember, Role};
use super::pieces::Piecewise;
use crate::collectives::Call;
use crate::error::CommError;
use crate::operation::Operation;
use crate::transport::Chunks;

impl LibraryMember {
    /// Fills slice `p` of `to` with slice `position` of the `from` of the member at `p`: one equal slice per member.
    pub(crate) fn all_to_all<T: Pod>(&self, call: &Call, from: &[T], to: &mut [T]) -> Result<(), CommError> {
        let (operation, members) = (Operation::AllToAll, call.group.size());
        call.check_equal_slices(operation, from.len())?;
        assert_eq!(from.len(), to.len(), "both buffers of an all-to-all have one length");
        let (from, to): (&[u8], &mut [u8]) = (bytemuck::cast_slice(from), bytemuck::cast_slice_mut(to));
        let (len, slice) = (from.len(), from.len() / members);
        match &self.role {
            Role::Follower { leader } => {
                self.hand_over(call, operation, *leader, from)?;
                self.take_over(call, operation, *leader, to)
            }
            Role::Leader { followers, .. } => {
                self.announce(call, operation, len)?;
                let mut of_followers = vec![0; followers.len() * len];
                self.with_followers(call, operation, len, &mut |chunks| {
                    self.meet(call, operation, len)?;
                    // Pieces are equally long everywhere, so the process with most members decides.
                    let most = self.library.by_process.iter().map(Vec::len).max().unwrap_or(1);
                    let longest = LibraryMember::longest_piece(2 * members * most, 1);
                    let mut work = Exchange {
                        member: self,
                        own: (from, &mut *to),
                        chunks,
                        of_followers: &mut of_followers,
                        slice,
                    };
                    self.in_pieces(call, operation, (slice, longest), &mut work)
                })?;
                let mut messages = followers.chunks(1).enumerate().map(|(follower, to)| {
                    call.message(to, operation, &of_followers[follower * len..(follower + 1) * len])
                });
                call.exchange(len, &mut messages, &mut || Ok(()))
            }
        }
    }
}

/// The slices that members of this process send and receive. The first half of the memory is sent, and the
/// second half received: by process, sender and receiver.
struct Exchange<'a> {
    member: &'a LibraryMember,
    /// The leader's two buffers.
    own: (&'a [u8], &'a mut [u8]),
    /// The buffers that its followers send.
    chunks: &'a dyn Chunks,
    /// The buffers that its followers receive, one after the other.
    of_followers: &'a mut [u8],
    slice: usize,
}

impl Exchange<'_> {
    /// The place of `piece` in the slice of the member at `position`.
    fn place(&self, position: usize, piece: &Range<usize>) -> Range<usize> {
        position * self.slice + piece.start..position * self.slice + piece.end
    }

    fn members(&self) -> impl Iterator<Item = usize> {
        self.member.library.by_process.iter().flatten().copied()
    }

    /// Bytes of one half of the memory.
    fn half(&self, piece: &Range<usize>) -> usize {
        self.member.here().len() * self.members().count() * piece.len()
    }
}

impl Piecewise for Exchange<'_> {
    fn collective(&self, piece: &Range<usize>) -> Result<Collective, CommError> {
        let here = self.member.here().len();
        let lens = self.member.library.by_process.iter().map(|members| here * members.len() * piece.len());
        let too_many = CommError::TooManyMembers { members: self.members().count() };
        Ok(Collective::AllToAll { parts: Parts::new(lens).ok_or(too_many)? })
    }

    fn fill(&self, piece: &Range<usize>, memory: &mut [u64]) {
        let memory: &mut [u8] = bytemuck::cast_slice_mut(memory);
        let mut memory = memory.chunks_exact_mut(piece.len());
        for receivers in &self.member.library.by_process {
            for sender in 0..self.member.here().len() {
                let sent = if sender == 0 { self.own.0 } else { self.chunks.chunk(sender - 1) };
                for (receiver, memory) in receivers.iter().zip(&mut memory) {
                    memory.copy_from_slice(&sent[self.place(*receiver, piece)]);
                }
            }
        }
    }

    fn take(&mut self, piece: &Range<usize>, memory: &[u64]) {
        let memory: &[u8] = bytemuck::cast_slice(memory);
        let mut memory = memory[self.half(piece)..].chunks_exact(piece.len());
        let (senders, len) = (self.members().collect::<Vec<_>>(), self.own.1.len());
        for sender in senders {
            let place = self.place(sender, piece);
            for (receiver, memory) in (0..self.member.here().len()).zip(&mut memory) {
                let received = match receiver {
                    0 => &mut *self.own.1,
                    follower => &mut self.of_followers[(follower - 1) * len..follower * len],
                };
                received[place.clone()].copy_from_slice(memory);
            }
        }
    }
}
