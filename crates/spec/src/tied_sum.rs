//! When the embedding's sum of a tied table's gradient is made, on a rank that computes the head, too.

use crate::{Kept, ModelSpec, Parallelism, StateKind, TrainSpec};

/// Where one rank has both uses of a tied table, each use has a sum of its own, so that the order of additions is that of ranks which have
/// one use each. The head's is filled along the step. The embedding's need not be there for as long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TiedSum {
    /// Each microbatch adds to it as soon as it can; it is memory that a rank has always.
    EachMicrobatch,
    /// All microbatches add to it at the end of the step, where activations lay before. Until then the gradients wait that they add.
    EndOfStep,
}

impl TiedSum {
    /// The one that needs less memory in steps of a full batch. What waits is at most two gradients per token of the replica, in front of and
    /// behind the embedding's dropout; the sum is a row for each token of this rank's share of the vocabulary, where ranks keep whole sums. All
    /// programs of a run go by the full batch, for they have their state in common.
    pub fn smaller(model: &ModelSpec, parallelism: &Parallelism, train: &TrainSpec) -> TiedSum {
        let tokens = train.global_batch / parallelism.dp * train.sequence_length;
        let is_kept = model.tied_embeddings && parallelism.zero.keeps(StateKind::Gradients) == Kept::Whole;
        match is_kept && 2 * tokens <= model.vocabulary / parallelism.tp {
            true => TiedSum::EndOfStep,
            false => TiedSum::EachMicrobatch,
        }
    }
}
