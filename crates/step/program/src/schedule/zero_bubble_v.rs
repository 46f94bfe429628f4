//! ZB-V (Qi et al., Zero Bubble Pipeline Parallelism, section 6).

use super::filling::fillings;
use super::span::slowest_rank;
use super::{Cell, CellCosts, CellKind, Schedule, StageCosts};

/// Two stages per rank in a V: rank `r` has the stages `r` and `2 pp - 1 - r`, so the first rank has the embedding and
/// the head. Forwards and backwards of the input follow the pattern in which no rank waits where all passes take
/// equally long; backwards of the weights fill what is left. Every rank keeps `2 pp` passes of half a rank's layers: as
/// much as 1F1B's first does.
pub fn zero_bubble_v(pp: usize, num_microbatches: usize, costs: &CellCosts) -> Schedule {
    let stage_map = (0..2 * pp).map(|stage| stage.min(2 * pp - 1 - stage)).collect();
    let ranks = (0..pp).map(|rank| {
        let mut cells = pattern(pp, rank, num_microbatches);
        cells.retain(|cell| (cell.microbatch.0 as usize) < num_microbatches);
        cells
    });
    let order = Schedule { ranks: ranks.collect(), stage_map };
    let limits = vec![2 * pp * costs.held_until_input; pp];
    let costs = StageCosts::from(*costs);
    let [first, rest @ ..] = fillings(&order, &costs, &limits).map(|filled| (slowest_rank(&filled, &costs), filled));
    rest.into_iter().fold(first, |best, next| if next.0 < best.0 { next } else { best }).1
}

/// The pattern of one rank, of at least the `2 pp - 1` microbatches that fill the pipeline; with fewer, cells of the
/// missing ones are left out of it.
fn pattern(pp: usize, rank: usize, num_microbatches: usize) -> Vec<Cell> {
    let passes = num_microbatches.max(2 * pp - 1);
    let (down, up) = (rank, 2 * pp - 1 - rank);
    let mut next = [0; 4];
    let mut take = |stage: usize, kind: CellKind| {
        let place = 2 * usize::from(stage == up) + usize::from(kind == CellKind::I);
        let microbatch = next[place];
        next[place] += 1;
        (microbatch < passes).then(|| Cell::new(stage, kind, microbatch))
    };
    let (forward, backward) = (CellKind::F, CellKind::I);
    let mut cells = vec![];
    let mut repeat = |times: usize, kinds: &[(usize, CellKind)]| {
        for _ in 0..times {
            cells.extend(kinds.iter().filter_map(|(stage, kind)| take(*stage, *kind)));
        }
    };
    // Until the first microbatch comes back up, then until it comes back as a gradient.
    repeat(2 * (pp - rank) - 1, &[(down, forward)]);
    repeat(rank, &[(up, forward), (down, forward)]);
    repeat(pp - rank, &[(up, forward), (up, backward)]);
    // One cell of each kind in turn; what there is no microbatch for any more is left out.
    repeat(passes, &[(down, forward), (down, backward), (up, forward), (up, backward)]);
    cells
}
