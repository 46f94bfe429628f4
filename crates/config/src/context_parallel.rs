//! Context parallelism: which tokens of a sequence are whose, and how attention reaches the keys and values of the
//! others.

use std::ops::Range;

/// How attention reaches keys and values of tokens on other ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContextKind {
    /// Keys and values of all tokens are gathered before each use; their gradients are summed and scattered in rank
    /// order (Llama 3, Grattafiori et al. 2024, section 3.3.2).
    Gather,
}

/// How the chunks of a sequence are dealt to the ranks that share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChunkOrder {
    /// `2 cp` chunks, of which rank `r` has number `r` and number `2 cp - 1 - r`: with a causal mask all ranks have
    /// equally much work. No token may see one that comes after it.
    Balanced,
    /// `cp` chunks, of which rank `r` has number `r`. Tokens may see any of their sequence.
    Contiguous,
}

/// The choices of a run about context parallelism in addition to its degree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContextParallel {
    /// How keys and values come together.
    pub kind: ContextKind,
    /// Which tokens are whose.
    pub chunks: ChunkOrder,
}

impl ContextParallel {
    /// That of a run that names nothing.
    pub const DEFAULT: ContextParallel = ContextParallel { kind: ContextKind::Gather, chunks: ChunkOrder::Balanced };
}

/// The split of every sequence between the ranks that share it.
///
/// Places, labels, intervals of visible keys and random numbers are functions of a token's place in its sequence, which
/// [`SequenceSlices::chunks`] tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceSlices {
    /// Ranks that share a sequence.
    pub ranks: usize,
    /// Which of its tokens each has.
    pub order: ChunkOrder,
}

impl SequenceSlices {
    /// Every rank has whole sequences.
    pub const WHOLE: SequenceSlices = SequenceSlices { ranks: 1, order: ChunkOrder::Contiguous };

    /// Equal chunks into which a sequence is cut.
    pub fn num_chunks(self) -> usize {
        match (self.ranks, self.order) {
            (1, ChunkOrder::Balanced | ChunkOrder::Contiguous) => 1,
            (ranks, ChunkOrder::Balanced) => 2 * ranks,
            (ranks, ChunkOrder::Contiguous) => ranks,
        }
    }

    /// Tokens that a rank has of a sequence of `sequence_length`.
    pub fn tokens(self, sequence_length: usize) -> usize {
        sequence_length.checked_div(self.ranks).unwrap_or(0)
    }

    /// The places in a sequence of `sequence_length` tokens that the rank at `position` has, ascending.
    pub fn chunks(
        self,
        sequence_length: usize,
        position: usize,
    ) -> impl DoubleEndedIterator<Item = Range<usize>> + Clone {
        let (number, length) = (self.num_chunks(), sequence_length / self.num_chunks());
        let second = (number == 2 * self.ranks).then(|| number - 1 - position);
        std::iter::once(position).chain(second).map(move |chunk| chunk * length..(chunk + 1) * length)
    }

    /// How many of the keys of a sequence of `sequence_length` tokens the tokens of `chunk` may see.
    pub fn keys_seen_by(self, sequence_length: usize, chunk: &Range<usize>) -> usize {
        match self.order {
            ChunkOrder::Balanced => chunk.end,
            ChunkOrder::Contiguous => sequence_length,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(ranks: usize, order: ChunkOrder, length: usize) -> Vec<Vec<(usize, usize)>> {
        let slices = SequenceSlices { ranks, order };
        let of_rank = |position| slices.chunks(length, position).map(|chunk| (chunk.start, chunk.end)).collect();
        (0..ranks).map(of_rank).collect()
    }

    #[test]
    fn chunks_are_dealt_from_both_ends_or_one_after_the_other() {
        assert_eq!(places(1, ChunkOrder::Balanced, 7), [[(0, 7)]]);
        assert_eq!(places(2, ChunkOrder::Balanced, 8), [[(0, 2), (6, 8)], [(2, 4), (4, 6)]]);
        assert_eq!(places(3, ChunkOrder::Balanced, 12), [[(0, 2), (10, 12)], [(2, 4), (8, 10)], [(4, 6), (6, 8)]]);
        assert_eq!(places(3, ChunkOrder::Contiguous, 12), [[(0, 4)], [(4, 8)], [(8, 12)]]);
    }

    #[test]
    fn every_token_is_on_one_rank_and_causal_pairs_are_equally_many() {
        for (ranks, order) in [2, 3, 4, 8]
            .into_iter()
            .flat_map(|ranks| [ChunkOrder::Balanced, ChunkOrder::Contiguous].map(move |order| (ranks, order)))
        {
            let length = 6 * ranks;
            let of_ranks = places(ranks, order, length);
            let mut all: Vec<usize> = of_ranks.iter().flatten().flat_map(|&(start, end)| start..end).collect();
            all.sort_unstable();
            assert_eq!(all, (0..length).collect::<Vec<_>>());
            let pairs: Vec<usize> =
                of_ranks.iter().map(|chunks| chunks.iter().flat_map(|&(start, end)| start + 1..=end).sum()).collect();
            let equal = pairs.iter().all(|own| *own == pairs[0]);
            assert_eq!(equal, order == ChunkOrder::Balanced, "{order:?}: {pairs:?}");
        }
    }
}
