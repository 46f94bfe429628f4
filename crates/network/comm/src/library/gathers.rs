//! Gathers, broadcasts and barriers by the library.

use std::ops::Range;

use bytemuck::Pod;
use mpi::{Collective, Parts};

use super::member::{LibraryMember, Role};
use super::pieces::{PIECE_BYTES, Piecewise};
use crate::collectives::Call;
use crate::error::CommError;
use crate::operation::Operation;

impl LibraryMember {
    /// Fills the other members' slices of `data`, cut into one equal slice per member.
    pub(crate) fn all_gather<T: Pod>(&self, call: &Call, data: &mut [T]) -> Result<(), CommError> {
        let (operation, members) = (Operation::AllGather, call.group.size());
        call.check_equal_slices(operation, data.len())?;
        let data: &mut [u8] = bytemuck::cast_slice_mut(data);
        let slice = data.len() / members;
        let range = |position: usize| position * slice..(position + 1) * slice;
        match &self.role {
            Role::Follower { leader } => {
                self.hand_over(call, operation, *leader, &data[range(call.group.position())])?;
                self.take_over(call, operation, *leader, data)
            }
            Role::Leader { followers, .. } => {
                self.announce(call, operation, data.len())?;
                let positions = &self.here()[1..];
                call.receive(followers, operation, slice, &mut |offset, chunks| {
                    for (follower, position) in positions.iter().enumerate() {
                        let piece = chunks.chunk(follower);
                        let first = range(*position).start + offset;
                        data[first..first + piece.len()].copy_from_slice(piece);
                    }
                })?;
                self.meet(call, operation, data.len())?;
                let longest = LibraryMember::longest_piece(members, 1);
                let mut work = Slices { member: self, data, slice };
                self.in_pieces(call, operation, (slice, longest), &mut work)?;
                self.pass_on(call, operation, data, None)
            }
        }
    }

    /// Replaces `bytes` by those of the member at position `root`.
    pub(crate) fn broadcast(&self, call: &Call, root: usize, bytes: &mut [u8]) -> Result<(), CommError> {
        let (operation, len) = (Operation::Broadcast, bytes.len());
        let outside = CommError::NoSuchPosition { rank: call.group.rank(), position: root, members: call.group.size() };
        let process = self.library.by_process.iter().position(|members| members.contains(&root)).ok_or(outside)?;
        match &self.role {
            Role::Follower { leader } if root == call.group.position() => {
                self.hand_over(call, operation, *leader, bytes)
            }
            Role::Follower { leader } => self.take_over(call, operation, *leader, bytes),
            Role::Leader { .. } => {
                self.announce(call, operation, len)?;
                let follower = call.group.member(root).filter(|_| process == self.own && root != call.group.position());
                if let Some(follower) = follower {
                    call.receive(&[follower], operation, len, &mut |offset, chunks| {
                        let piece = chunks.chunk(0);
                        bytes[offset..offset + piece.len()].copy_from_slice(piece);
                    })?;
                }
                self.meet(call, operation, len)?;
                let mut work = Whole { root: process, own: self.own, bytes };
                self.in_pieces(call, operation, (len, PIECE_BYTES), &mut work)?;
                self.pass_on(call, operation, bytes, follower)
            }
        }
    }

    /// Returns when every member has called it.
    pub(crate) fn barrier(&self, call: &Call) -> Result<(), CommError> {
        let operation = Operation::Barrier;
        match &self.role {
            Role::Follower { leader } => {
                self.hand_over(call, operation, *leader, &[])?;
                self.take_over(call, operation, *leader, &mut [])
            }
            Role::Leader { followers, .. } => {
                self.announce(call, operation, 0)?;
                call.receive(followers, operation, 0, &mut |_, _| {})?;
                self.meet(call, operation, 0)?;
                let pending = self.library.communicator.begin(Collective::Barrier, vec![]);
                self.wait(call, operation, &pending)?;
                self.pass_on(call, operation, &[], None)
            }
        }
    }

    /// Gives `bytes` to the other members of this process but `without`.
    fn pass_on(
        &self,
        call: &Call,
        operation: Operation,
        bytes: &[u8],
        without: Option<mesh::Rank>,
    ) -> Result<(), CommError> {
        let Role::Leader { followers, .. } = &self.role else { return Ok(()) };
        let followers: Vec<mesh::Rank> =
            followers.iter().copied().filter(|follower| Some(*follower) != without).collect();
        let message = call.message(&followers, operation, bytes);
        call.exchange(bytes.len(), &mut std::iter::once(message), &mut || Ok(()))
    }
}

/// Every member's slice. The memory has the pieces of all slices, by process.
struct Slices<'a> {
    member: &'a LibraryMember,
    data: &'a mut [u8],
    slice: usize,
}

impl Slices<'_> {
    /// The places of `piece` in the slices of all members, by process.
    fn places(&self, piece: &Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> {
        let (slice, piece) = (self.slice, piece.clone());
        let members = self.member.library.by_process.iter().enumerate();
        let members = members.flat_map(|(process, members)| members.iter().map(move |member| (process, *member)));
        members.map(move |(process, member)| (process, member * slice + piece.start..member * slice + piece.end))
    }
}

impl Piecewise for Slices<'_> {
    fn collective(&self, piece: &Range<usize>) -> Result<Collective, CommError> {
        let lens = self.member.library.by_process.iter().map(|members| members.len() * piece.len());
        let too_many = CommError::TooManyMembers { members: self.data.len() / self.slice.max(1) };
        Ok(Collective::AllGather { parts: Parts::new(lens).ok_or(too_many)? })
    }

    fn fill(&self, piece: &Range<usize>, memory: &mut [u64]) {
        let memory: &mut [u8] = bytemuck::cast_slice_mut(memory);
        for (memory, (process, place)) in memory.chunks_mut(piece.len()).zip(self.places(piece)) {
            if process == self.member.own {
                memory.copy_from_slice(&self.data[place]);
            }
        }
    }

    fn take(&mut self, piece: &Range<usize>, memory: &[u64]) {
        let memory: &[u8] = bytemuck::cast_slice(memory);
        let places: Vec<_> = self.places(piece).collect();
        for (memory, (process, place)) in memory.chunks(piece.len()).zip(places) {
            if process != self.member.own {
                self.data[place].copy_from_slice(memory);
            }
        }
    }
}

/// The bytes of one process.
struct Whole<'a> {
    root: usize,
    own: usize,
    bytes: &'a mut [u8],
}

impl Piecewise for Whole<'_> {
    fn collective(&self, piece: &Range<usize>) -> Result<Collective, CommError> {
        Ok(Collective::Broadcast { root: self.root, len: piece.len() })
    }

    fn fill(&self, piece: &Range<usize>, memory: &mut [u64]) {
        let memory: &mut [u8] = bytemuck::cast_slice_mut(memory);
        if self.root == self.own {
            memory[..piece.len()].copy_from_slice(&self.bytes[piece.clone()]);
        }
    }

    fn take(&mut self, piece: &Range<usize>, memory: &[u64]) {
        let memory: &[u8] = bytemuck::cast_slice(memory);
        if self.root != self.own {
            self.bytes[piece.clone()].copy_from_slice(&memory[..piece.len()]);
        }
    }
}
