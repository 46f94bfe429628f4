//! The automatic schedule under a limit of memory (Qi et al., Zero Bubble Pipeline Parallelism, section 3): ZB-1p, ZB-2p.

use super::filling::fill;
use super::{Cell, CellCosts, CellKind, Schedule};

/// One stage per rank. A rank runs forwards ahead that fill the wait for its first gradient, as far as they fit into the limit, then forwards
/// and backwards of the input alternate; backwards of the weights fill waits. Of several numbers of forwards ahead, those are
/// taken with which the slowest rank takes least time.
///
/// `memory_percent` is the limit in hundredths of what 1F1B's first rank keeps: `pp` microbatches.
pub fn zero_bubble_auto(pp: usize, num_microbatches: usize, memory_percent: usize, costs: &CellCosts) -> Schedule {
    let most_ahead = (memory_percent * pp / 100).max(1) - 1;
    let limit = memory_percent * pp * costs.held_until_input / 100;
    let [first, rest @ ..] = [Ahead::AsOneForwardOneBackward, Ahead::WithoutDelay, Ahead::WithoutWait].map(|rule| {
        let ahead: Vec<usize> = (0..pp).map(|rank| rule.forwards(pp - 1 - rank, costs).min(most_ahead)).collect();
        fill(&alternating(&ahead, num_microbatches), costs, limit)
    });
    rest.into_iter().fold(first, |best, next| if next.span < best.span { next } else { best }).schedule
}

/// How many forwards a rank runs before the one that alternates with its first backward.
#[derive(Clone, Copy)]
enum Ahead {
    /// One per rank behind it.
    AsOneForwardOneBackward,
    /// As many as end before the first gradient comes.
    WithoutDelay,
    /// As many as leave no wait before it.
    WithoutWait,
}

impl Ahead {
    /// On a rank with `behind` ranks behind it.
    fn forwards(self, behind: usize, costs: &CellCosts) -> usize {
        let times = &costs.times;
        let forward = times.forward.max(1);
        // From the start of the first forward until its gradient is back.
        let round_trip = (behind + 1) * forward + behind * (times.backward_input + 2 * times.transfer);
        let filling = match self {
            Ahead::AsOneForwardOneBackward => 0,
            Ahead::WithoutDelay => round_trip / forward - 1,
            Ahead::WithoutWait => round_trip.div_ceil(forward) - 1,
        };
        filling.max(behind)
    }
}

/// After `ahead` forwards, one forward and one backward of the input in turn.
fn alternating(ahead: &[usize], num_microbatches: usize) -> Schedule {
    let cells = |(stage, ahead): (usize, &usize)| {
        let ahead = (*ahead).min(num_microbatches);
        let forward = |number| Cell::new(stage, CellKind::F, number);
        let steady = (0..num_microbatches).flat_map(|number| {
            let next = number + ahead;
            [(next < num_microbatches).then(|| forward(next)), Some(Cell::new(stage, CellKind::I, number))]
        });
        (0..ahead).map(forward).chain(steady.flatten()).collect()
    };
    Schedule { ranks: ahead.iter().enumerate().map(cells).collect(), stage_map: (0..ahead.len()).collect() }
}
