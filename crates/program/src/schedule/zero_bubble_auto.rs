//! The automatic schedule under a limit of memory (Qi et al., Zero Bubble Pipeline Parallelism, section 3): ZB-1p,
//! ZB-2p.

use config::Stage;

use super::filling::fillings;
use super::span::{slowest_rank, span};
use super::zero_bubble_h1::zero_bubble_h1;
use super::zero_bubble_h2::zero_bubble_h2;
use super::{Cell, CellCosts, CellKind, CellTimes, Schedule, StageCosts};

/// One stage per rank. A rank runs forwards ahead that fill the wait for its first gradient, as far as they fit into
/// the limit, then forwards and backwards of the input alternate; backwards of the weights fill waits. Several numbers
/// of forwards ahead are tried, and ZB-H1 and ZB-H2 where they fit.
///
/// The one is taken that ends soonest under `costs`, which has the times of each stage; of those that end at the same
/// time, the one in which the slowest rank takes least time. An accelerator has other times than `costs`: what moves
/// data takes a larger share there, what is sent takes time, and short passes take as long as the host needs to issue
/// them. So, below twice the memory, one that ends later than ZB-H1 under any of the [`WEIGHTINGS`] is left out. The
/// handmade one itself never is.
///
/// `memory_percent` is the limit in hundredths of what `pp` microbatches hold of a stage, as on 1F1B's first rank.
pub fn zero_bubble_auto(pp: usize, num_microbatches: usize, memory_percent: usize, costs: &StageCosts) -> Schedule {
    let most_ahead = (memory_percent * pp / 100).max(1) - 1;
    let held = |stage: usize| {
        let CellCosts { held_until_input, held_until_weight, .. } = *costs.of(Stage(stage as u32));
        held_until_input.max(held_until_weight)
    };
    let limits: Vec<usize> = (0..pp).map(|stage| memory_percent * pp * held(stage) / 100).collect();
    let rules = [Ahead::AsOneForwardOneBackward, Ahead::WithoutDelay, Ahead::WithoutWait];
    let searched = rules.into_iter().flat_map(|rule| {
        let forwards = |rank: usize| rule.forwards(pp - 1 - rank, &costs.usual.times).min(most_ahead);
        let ahead: Vec<usize> = (0..pp).map(forwards).collect();
        fillings(&alternating(&ahead, num_microbatches), costs, &limits)
    });
    let handmade = match memory_percent {
        ..100 => None,
        100..200 => Some(zero_bubble_h1(pp, num_microbatches)),
        200.. => Some(zero_bubble_h2(pp, num_microbatches)),
    };
    // With twice the memory the searched ones gain most where passes have the times of `costs`.
    let compared = if memory_percent < 200 { &WEIGHTINGS[..] } else { &WEIGHTINGS[..1] };
    let weighted: Vec<StageCosts> = compared.iter().map(|weighting| weighting.of(costs)).collect();
    let ends = |schedule: &Schedule| -> Vec<usize> { weighted.iter().map(|costs| span(schedule, costs)).collect() };
    let to_beat = handmade.as_ref().map(ends);
    let is_never_later =
        |ends: &[usize]| to_beat.as_ref().is_none_or(|other| ends.iter().zip(other).all(|(end, other)| end <= other));
    let candidates = searched.chain(handmade).map(|schedule| (ends(&schedule), schedule));
    let time = |(ends, schedule): &(Vec<usize>, Schedule)| (ends[0], slowest_rank(schedule, costs));
    let best = candidates.filter(|(ends, _)| is_never_later(ends)).min_by_key(time);
    best.map_or_else(|| zero_bubble_h1(pp, num_microbatches), |(_, schedule)| schedule)
}

/// Other times of the same passes.
#[derive(Clone, Copy)]
enum Weighting {
    /// Backwards of the input and of the weights in hundredths of what they are, and transfers in hundredths of a
    /// forward.
    Scaled { input: usize, weight: usize, transfer: usize },
    /// All passes of all stages take equally long, as where the host issues as many kernels for each.
    Even,
}

/// The times as they are, first; with transfers; of backwards of the weights that take less, for they alone move
/// little data and wait for no collectives; and of passes that the host bounds.
const WEIGHTINGS: [Weighting; 4] = [
    Weighting::Scaled { input: 100, weight: 100, transfer: 0 },
    Weighting::Scaled { input: 100, weight: 100, transfer: 10 },
    Weighting::Scaled { input: 125, weight: 75, transfer: 5 },
    Weighting::Even,
];

impl Weighting {
    fn of(self, costs: &StageCosts) -> StageCosts {
        let of_cells = |costs: &CellCosts| {
            let CellTimes { forward, backward_input, backward_weight, transfer } = costs.times;
            let times = match self {
                Weighting::Scaled { input, weight, transfer: of_forward } => CellTimes {
                    forward: 100 * forward,
                    backward_input: input * backward_input,
                    backward_weight: weight * backward_weight,
                    transfer: 100 * transfer + of_forward * forward,
                },
                Weighting::Even => CellTimes::EVEN,
            };
            CellCosts { times, ..*costs }
        };
        StageCosts { usual: of_cells(&costs.usual), stages: costs.stages.iter().map(of_cells).collect() }
    }
}

/// How many forwards a rank runs before the one that alternates with its first backward.
#[derive(Clone, Copy)]
enum Ahead {
    /// One per rank after it.
    AsOneForwardOneBackward,
    /// As many as end before the first gradient comes.
    WithoutDelay,
    /// As many as leave no wait before it.
    WithoutWait,
}

impl Ahead {
    /// The forward passes that a rank runs ahead; the argument is the number of ranks after it.
    fn forwards(self, behind: usize, times: &CellTimes) -> usize {
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
