//! Context parallelism: which tokens of a sequence are whose, and how attention reaches the keys and values of the
//! others.

use std::ops::Range;

use crate::data_spec::DataSpec;
use crate::degrees::Degrees;
use crate::model::ModelSpec;
use crate::names::names;

/// How attention reaches keys and values of tokens on other ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContextKind {
    /// Keys and values of all tokens are gathered before each use; their gradients are summed and scattered in rank
    /// order (Llama 3, Grattafiori et al. 2024, section 3.3.2).
    Gather,
    /// An all-to-all gives each rank some heads of all tokens, and another one the outputs of all heads of its own
    /// tokens (Ulysses, Jacobs et al. 2023, arXiv 2309.14509).
    Heads,
    /// Blocks of keys and values are passed around the ranks, and the outputs of attention on each are joined by their
    /// log-sum-exps (Liu et al. 2023, arXiv 2310.01889): no rank ever has more than two blocks.
    Ring,
}

impl ContextKind {
    /// All kinds.
    pub const ALL: [ContextKind; 3] = [ContextKind::Gather, ContextKind::Heads, ContextKind::Ring];

    /// Elements that a rank receives for each of its tokens and each head's width in both passes of a layer, times `cp`
    /// over `cp - 1`. A link gives each its bytes at the same price, so they decide which kind is cheaper.
    fn received(self, model: &ModelSpec, Degrees { dp: _, cp, tp, pp: _ }: Degrees) -> usize {
        let (heads, kv_heads) = (model.num_heads / tp, model.num_kv_heads / tp);
        match self {
            // Keys and values in each pass, and their gradients: of all other ranks.
            ContextKind::Gather => 3 * 2 * kv_heads * cp,
            // Queries, keys and values, outputs; in the backward pass these and their gradients. A part in cp stays.
            ContextKind::Heads => 3 * 2 * (heads + kv_heads),
            // As gathering, and single-precision sums that come home.
            ContextKind::Ring => 4 * 2 * kv_heads * cp,
        }
    }

    /// Whether ranks that share sequences can split a model's heads in this way.
    pub fn divides_heads(self, model: &ModelSpec, Degrees { dp: _, cp, tp, pp: _ }: Degrees) -> bool {
        match self {
            ContextKind::Gather | ContextKind::Ring => true,
            ContextKind::Heads => {
                [model.num_heads, model.num_kv_heads].iter().all(|heads| heads.is_multiple_of(tp * cp))
            }
        }
    }

    /// The kind that moves fewest bytes of those that the heads allow; the first of equals.
    pub fn cheapest(model: &ModelSpec, degrees: Degrees) -> ContextKind {
        let Degrees { dp: _, cp, tp, pp: _ } = degrees;
        let possible = |kind: &ContextKind| cp * tp > 0 && kind.divides_heads(model, degrees);
        let cheapest = ContextKind::ALL.into_iter().filter(possible).min_by_key(|kind| kind.received(model, degrees));
        cheapest.unwrap_or(ContextKind::Gather)
    }
}

/// How the chunks of a sequence are dealt to the ranks that share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChunkOrder {
    /// `2 cp` chunks, of which rank `r` has number `r` and number `2 cp - 1 - r`: with a causal mask all ranks have
    /// equally much work. Where keys are gathered, no token may see one that comes after it.
    Balanced,
    /// `cp` chunks, of which rank `r` has number `r`. Tokens may see any of their sequence.
    Contiguous,
}

names! { ChunkOrder: "balanced" = Balanced, "contiguous" = Contiguous }

/// The choices of a run about context parallelism in addition to its degree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContextParallel {
    /// How keys and values come together.
    pub kind: ContextKind,
    /// Which tokens are whose.
    pub chunks: ChunkOrder,
}

impl ContextParallel {
    /// The values of a run that names none.
    pub const DEFAULT: ContextParallel = ContextParallel { kind: ContextKind::Gather, chunks: ChunkOrder::Balanced };

    /// A kind with the chunks that give all ranks equally much work. The tokens of a text whose blanks are filled see
    /// ones that come after them, so no token's chunk may hide these.
    pub fn of(kind: ContextKind, data: &DataSpec) -> ContextParallel {
        let chunks = match kind {
            ContextKind::Gather | ContextKind::Ring if data.blanks.is_none() => ChunkOrder::Balanced,
            // With whole sequences all ranks have equally much work anyway.
            ContextKind::Gather | ContextKind::Heads | ContextKind::Ring => ChunkOrder::Contiguous,
        };
        ContextParallel { kind, chunks }
    }
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
    /// How their keys and values come together.
    pub kind: ContextKind,
}

impl SequenceSlices {
    /// Every rank has whole sequences.
    pub const WHOLE: SequenceSlices =
        SequenceSlices { ranks: 1, order: ChunkOrder::Contiguous, kind: ContextKind::Gather };

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
        match (self.kind, self.order) {
            (ContextKind::Gather | ContextKind::Ring, ChunkOrder::Balanced) => chunk.end,
            // A head sees whole sequences, whoever has which tokens between layers.
            (ContextKind::Gather | ContextKind::Ring, ChunkOrder::Contiguous)
            | (ContextKind::Heads, ChunkOrder::Balanced | ChunkOrder::Contiguous) => sequence_length,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(ranks: usize, order: ChunkOrder, length: usize) -> Vec<Vec<(usize, usize)>> {
        let slices = SequenceSlices { ranks, order, kind: ContextKind::Gather };
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
