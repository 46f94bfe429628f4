//! Interleaved 1F1B: several stages per rank, placed in turns, in the order of Megatron-LM.

use super::{Cell, CellKind, Schedule};

/// Rank `r` has the stages `r`, `r + pp`, `r + 2 pp` and so on. Microbatches pass in groups of `pp`: a rank runs a
/// whole group through one of its stages, then through the next one; backward likewise from the last. It is
/// `2 (pp - 1 - r) + (stages_per_rank - 1) pp` passes ahead before forward and backward passes alternate. Bubble:
/// `(pp - 1) (F + B) / stages_per_rank`.
///
/// # Panics
/// Microbatches that are not a multiple of `pp`.
pub fn interleaved(pp: usize, num_microbatches: usize, stages_per_rank: usize) -> Schedule {
    assert!(num_microbatches.is_multiple_of(pp), "{num_microbatches} microbatches do not make groups of {pp}");
    let passes = num_microbatches * stages_per_rank;
    // Of which turn among the rank's stages, and of which microbatch, the n-th pass is.
    let turn = |pass: usize| pass / pp % stages_per_rank;
    let microbatch = |pass: usize| pass / (pp * stages_per_rank) * pp + pass % pp;
    let cells = |rank: usize| {
        let forward = |pass| Cell::new(turn(pass) * pp + rank, CellKind::F, microbatch(pass));
        let backward = |pass| Cell::new((stages_per_rank - 1 - turn(pass)) * pp + rank, CellKind::B, microbatch(pass));
        let ahead = (2 * (pp - 1 - rank) + (stages_per_rank - 1) * pp).min(passes);
        let warm_up = (0..ahead).map(forward);
        let steady = (ahead..passes).flat_map(|pass| [forward(pass), backward(pass - ahead)]);
        let drain = (passes - ahead..passes).map(backward);
        warm_up.chain(steady).chain(drain).collect()
    };
    let stage_map = (0..pp * stages_per_rank).map(|stage| stage % pp).collect();
    Schedule { ranks: (0..pp).map(cells).collect(), stage_map }
}
