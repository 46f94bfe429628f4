//! When the embedding's sum of a tied table's gradient is made, on a rank that computes the head, too.

use crate::{Degrees, Kept, ModelSpec, Parallelism, StateKind, TrainSpec};

/// Where one rank has both uses of a tied table, each use has a sum of its own, so that the order of additions is that of ranks which have
/// one use each. The head's is filled along the step. The embedding's need not be there for as long.
///
/// All programs of a run go by the same one, for they have their state in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TiedSum {
    /// Each microbatch adds to it as soon as it can; it is memory that a rank has always.
    EachMicrobatch,
    /// All microbatches add to it at the end of the step, where activations lay before. Until then the gradients wait that they add.
    EndOfStep,
}

impl TiedSum {
    /// Of how many microbatches at most the gradients may wait for the end of the step: of more, those of the embedding's output alone would take
    /// more than the sum, a row for each token of a rank's share of the vocabulary. None, where no rank keeps such a sum whole.
    pub fn max_waiting_microbatches(model: &ModelSpec, parallelism: &Parallelism, train: &TrainSpec) -> usize {
        let Parallelism { degrees: Degrees { tp, .. }, microbatch_size, sequence_parallel, zero, .. } = *parallelism;
        if !model.tied_embeddings || zero.keeps(StateKind::Gradients) == Kept::Shard {
            return 0;
        }
        let waiting_rows = microbatch_size * train.sequence_length / sequence_parallel.runs(tp);
        let sum_bytes = model.vocabulary.div_ceil(tp) * train.sums.size_bytes();
        sum_bytes / (waiting_rows * train.precision.stored().size_bytes())
    }
}
