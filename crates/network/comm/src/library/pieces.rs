//! A long buffer through the library's memory, piece by piece.

use std::collections::VecDeque;
use std::ops::Range;

use mpi::Collective;
use sync::lock;

use super::member::LibraryMember;
use crate::collectives::Call;
use crate::error::CommError;
use crate::operation::Operation;

/// Memory of one piece, all parts together.
pub(super) const PIECE_BYTES: usize = 1 << 20;
/// Pieces under way at the same time: one is copied while the library moves the other.
const UNDER_WAY: usize = 2;

/// The pieces of one call.
pub(super) trait Piecewise {
    /// The collective over `piece`.
    fn collective(&self, piece: &Range<usize>) -> Result<Collective, CommError>;

    /// Puts this process's part of `piece` into the memory.
    fn fill(&self, piece: &Range<usize>, memory: &mut [u64]);

    /// Takes the result out of the memory.
    fn take(&mut self, piece: &Range<usize>, memory: &[u64]);
}

impl LibraryMember {
    /// Moves `len` elements in pieces of at most `longest`.
    pub(super) fn in_pieces(
        &self,
        call: &Call,
        operation: Operation,
        (len, longest): (usize, usize),
        work: &mut dyn Piecewise,
    ) -> Result<(), CommError> {
        let mut under_way: VecDeque<(Range<usize>, _)> = VecDeque::new();
        let mut next = 0;
        while next < len || !under_way.is_empty() {
            if next < len && under_way.len() < UNDER_WAY {
                let piece = next..len.min(next + longest);
                next = piece.end;
                let collective = work.collective(&piece)?;
                let mut memory = lock(&self.spare).pop().unwrap_or_default();
                let words = collective.size_bytes().max(PIECE_BYTES).div_ceil(size_of::<u64>());
                memory.resize(words, 0);
                work.fill(&piece, &mut memory);
                under_way.push_back((piece, self.library.communicator.begin(collective, memory)));
            } else if let Some((piece, pending)) = under_way.pop_front() {
                let memory = self.wait(call, operation, &pending)?;
                work.take(&piece, &memory);
                lock(&self.spare).push(memory);
            }
        }
        Ok(())
    }

    /// The most elements of `width` bytes of one of `parts` equal parts in a piece.
    pub(super) fn longest_piece(parts: usize, width: usize) -> usize {
        (PIECE_BYTES / width / parts.max(1)).max(1)
    }
}
