//! When the embedding's sum of a tied table's gradient is made, on a rank that computes the head, too.

use crate::{Degrees, Kept, ModelSpec, Parallelism, StateKind, TrainSpec};

/// Where one rank has both uses of a tied table, each use has a sum of its own, so that the order of additions is that
/// of ranks which have one use each. The head's is filled along the step. The embedding's need not be there for as
/// long.
///
/// All programs of a run follow the same one, for they have their state in common.
///
/// [`TiedSum::EndOfStep`] saves at most the sum itself, a row of gradients for each token of a rank's share of the
/// vocabulary, less the gradients that wait. One rank of GPT-2 with 124M parameters in bf16, four microbatches of 4 x
/// 1,024 tokens, needs 3,195 MB instead of 3,330 MB (4.1 %). With 24 layers of width 2,048, a vocabulary of 250,880 and
/// four microbatches of 2,048 tokens, 33,547 MB instead of 35,577 MB (5.7 %): the 2.03 GB are more than two layers with
/// their optimizer state. It costs a value of its own, a choice when a step is ordered, and one place each where passes
/// are deferred, in the bound of the planner and in the memory that `check` asks for: about 130 lines in five crates.
/// Run files do not name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TiedSum {
    /// Each microbatch adds to it as soon as it can; it is memory that a rank has always.
    EachMicrobatch,
    /// All microbatches add to it at the end of the step, where activations lay before. Until then the gradients wait
    /// that they add.
    EndOfStep,
}

impl TiedSum {
    /// Of how many microbatches at most the gradients may wait for the end of the step: of more, those of the
    /// embedding's output alone would take more than the sum, a row for each token of a rank's share of the vocabulary.
    /// None, where no rank keeps such a sum whole.
    pub fn max_waiting_microbatches(model: &ModelSpec, parallelism: &Parallelism, train: &TrainSpec) -> usize {
        let Parallelism { degrees: Degrees { cp, tp, .. }, microbatch_size, sequence_parallel, zero, .. } =
            *parallelism;
        if !model.tied_embeddings || zero.keeps(StateKind::Gradients) == Kept::Shard {
            return 0;
        }
        let waiting_rows = microbatch_size * train.sequence_length / cp / sequence_parallel.runs(tp);
        let sum_bytes = model.vocabulary.div_ceil(tp) * train.sums.size_bytes();
        sum_bytes / (waiting_rows * train.precision.stored().size_bytes())
    }
}
