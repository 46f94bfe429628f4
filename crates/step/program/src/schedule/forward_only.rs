//! The schedule of a program that evaluates or generates: forwards only.

use super::{Cell, CellKind, Schedule};

/// Forwards of all microbatches in the order in which a pipeline without a wait would run them: microbatch `m` reaches
/// stage `s` at time `n m + s`, where `n` is the number of stages of the rank that has most; of two cells of one time
/// the later stage comes first.
///
/// A cell's input comes from an earlier time, so no rank waits in a circle, and all channels keep their order.
pub fn forward_only(stage_map: &[usize], pp: usize, num_microbatches: usize) -> Schedule {
    let of_rank = |rank: usize| (0..stage_map.len()).filter(move |stage| stage_map[*stage] == rank);
    let most_stages = (0..pp).map(|rank| of_rank(rank).count()).max().unwrap_or(1);
    let cells = |rank: usize| {
        let cells = of_rank(rank).flat_map(|stage| (0..num_microbatches).map(move |number| (stage, number)));
        let mut cells: Vec<(usize, usize)> = cells.collect();
        cells.sort_by_key(|&(stage, number)| (most_stages * number + stage, usize::MAX - stage));
        cells.into_iter().map(|(stage, number)| Cell::new(stage, CellKind::F, number)).collect()
    };
    Schedule { ranks: (0..pp).map(cells).collect(), stage_map: stage_map.to_vec() }
}
