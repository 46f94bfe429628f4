//! The automatic schedule under a limit of memory (Qi et al., Zero Bubble Pipeline Parallelism, section 3): ZB-1p,
//! ZB-2p.

use config::Stage;

use super::filling::fillings;
use super::span::{ends, slowest_rank, span};
use super::zero_bubble_h1::zero_bubble_h1;
use super::zero_bubble_h2::zero_bubble_h2;
use super::{Cell, CellCosts, CellKind, CellTimes, Schedule, StageCosts};
use crate::Updates;

/// One stage per rank. A rank runs forwards ahead that fill the wait for its first gradient, as far as they fit into
/// the limit, then forwards and backwards of the input alternate; backwards of the weights fill waits. Several numbers
/// of forwards ahead are tried, and ZB-H1 and ZB-H2 where they fit.
///
/// Without a barrier at the end of a step, the one is taken in which the slowest rank takes least time, and otherwise
/// the one that ends soonest under `costs`, which has the times of each stage. An accelerator has other times than
/// `costs`: what moves data takes a larger share there, what is sent takes time, and short passes take as long as the
/// host needs to issue them. So, with a barrier, the handmade schedule of its memory is taken unless another one is
/// sooner by [`LEAST_GAIN`], and later under none of the [`weightings`].
///
/// `memory_percent` is the limit in hundredths of what `pp` microbatches hold of a stage, as on 1F1B's first rank.
pub fn zero_bubble_auto(pp: usize, num_microbatches: usize, memory_percent: usize, costs: &StageCosts) -> Schedule {
    let most_ahead = (memory_percent * pp / 100).max(1) - 1;
    let held = |stage: usize| {
        let CellCosts { held_until_input, held_until_weight, .. } = *costs.of(Stage(stage as u32));
        held_until_input.max(held_until_weight)
    };
    let limits: Vec<usize> = (0..pp).map(|stage| memory_percent * pp * held(stage) / 100).collect();
    let even = Weighting::Even { transfer: 0 }.of(costs);
    let searched = Ahead::ALL.into_iter().flat_map(|rule| {
        let forwards = |rank: usize| rule.forwards(pp - 1 - rank, &costs.usual.times).min(most_ahead);
        let order = alternating(&(0..pp).map(forwards).collect::<Vec<_>>(), num_microbatches);
        [costs, &even].map(|costs| fillings(&order, costs, &limits)).into_iter().flatten().collect::<Vec<_>>()
    });
    let handmade = match memory_percent {
        ..100 => None,
        100..200 => Some(zero_bubble_h1(pp, num_microbatches)),
        200.. => Some(zero_bubble_h2(pp, num_microbatches)),
    };
    let time = |schedule: &Schedule| (slowest_rank(schedule, costs), span(schedule, costs));
    let best = match costs.updates {
        Updates::BeforeNorm => searched.chain(handmade).min_by_key(time),
        Updates::AfterNorm => soonest(handmade, searched, costs),
    };
    best.unwrap_or_else(|| zero_bubble_h1(pp, num_microbatches))
}

/// The schedule that ends soonest: the handmade one, or one that ends sooner by [`LEAST_GAIN`] and never later.
fn soonest(
    handmade: Option<Schedule>,
    searched: impl Iterator<Item = Schedule>,
    costs: &StageCosts,
) -> Option<Schedule> {
    let mut timed: Vec<(usize, Schedule)> = searched.map(|schedule| (span(&schedule, costs), schedule)).collect();
    timed.sort_by_key(|(end, _)| *end);
    let mut found = timed.into_iter().map(|(_, schedule)| schedule);
    let Some(handmade) = handmade else { return found.next() };
    let most = span(&handmade, costs) * (100 - LEAST_GAIN) / 100;
    // The weighting that excluded the last one comes first: it is likely to exclude the next.
    let mut weighted: Vec<(StageCosts, Option<[usize; 2]>)> =
        weightings().into_iter().map(|weighting| (weighting.of(costs), None)).collect();
    let is_never_later = |schedule: &Schedule| {
        let later = weighted.iter_mut().position(|(costs, to_beat)| {
            let to_beat = to_beat.get_or_insert_with(|| ends(&handmade, costs));
            ends(schedule, costs).iter().zip(to_beat).any(|(end, other)| *end > *other)
        });
        weighted.swap(0, later.unwrap_or(0));
        later.is_none()
    };
    let mut sooner = found.take_while(|schedule| span(schedule, costs) <= most);
    let never_later = sooner.find(is_never_later);
    Some(never_later.unwrap_or(handmade))
}

/// Hundredths of a step by which a searched schedule must be sooner than the handmade one. Of smaller gains, a cluster
/// whose passes have other times leaves nothing.
const LEAST_GAIN: usize = 2;

/// Other times of the same passes.
#[derive(Clone, Copy)]
enum Weighting {
    Scaled {
        /// The difference of stages from the usual one, in hundredths of their real difference.
        unlike: usize,
        backward: Backward,
        /// In hundredths of a forward.
        transfer: usize,
    },
    /// All passes of all stages take equally long, as where the host issues as many kernels for each, and transfers as
    /// many times as long.
    Even { transfer: usize },
}

/// Backwards of the input and of the weights.
#[derive(Clone, Copy)]
enum Backward {
    /// In hundredths of what they are.
    OfItself([usize; 2]),
    /// In hundredths of the forward of the stage.
    OfForward([usize; 2]),
}

const UNLIKE: [usize; 5] = [0, 50, 100, 150, 200];

/// As they are; with less for the weights, which move little data; with more for the weights. Then passes that take as
/// long as the host needs, or as their collectives, of which those of the weights have none.
const BACKWARDS: [Backward; 11] = [
    Backward::OfItself([100, 100]),
    Backward::OfItself([125, 75]),
    Backward::OfItself([200, 75]),
    Backward::OfItself([100, 60]),
    Backward::OfItself([150, 30]),
    Backward::OfItself([150, 60]),
    Backward::OfItself([90, 110]),
    Backward::OfForward([100, 100]),
    Backward::OfForward([100, 50]),
    Backward::OfForward([100, 15]),
    Backward::OfForward([150, 60]),
];

const TRANSFERS: [usize; 3] = [0, 20, 100];

/// All combinations of these, and passes that are all alike.
fn weightings() -> Vec<Weighting> {
    let mut all = [0, 1].map(|transfer| Weighting::Even { transfer }).to_vec();
    for unlike in UNLIKE {
        for backward in BACKWARDS {
            all.extend(TRANSFERS.map(|transfer| Weighting::Scaled { unlike, backward, transfer }));
        }
    }
    all
}

impl Weighting {
    fn of(self, costs: &StageCosts) -> StageCosts {
        let of_cells = |own: &CellCosts| CellCosts { times: self.times(&own.times, &costs.usual.times), ..*own };
        let stages = costs.stages.iter().map(of_cells).collect();
        StageCosts { usual: of_cells(&costs.usual), stages, updates: costs.updates }
    }

    /// The times of a stage with `own` times.
    fn times(self, own: &CellTimes, usual: &CellTimes) -> CellTimes {
        let (unlike, backward, transfer) = match self {
            Weighting::Even { transfer } => return CellTimes { transfer, ..CellTimes::EVEN },
            Weighting::Scaled { unlike, backward, transfer } => (unlike, backward, transfer),
        };
        let between = |own: usize, usual: usize| (100 * usual + unlike * own).saturating_sub(unlike * usual);
        let forward = between(own.forward, usual.forward);
        let (of_input, of_weight, [input, weight]) = match backward {
            Backward::OfItself(shares) => {
                let of_input = between(own.backward_input, usual.backward_input);
                (of_input, between(own.backward_weight, usual.backward_weight), shares)
            }
            Backward::OfForward(shares) => (forward, forward, shares),
        };
        CellTimes {
            forward: 100 * forward,
            backward_input: input * of_input,
            backward_weight: weight * of_weight,
            transfer: 10_000 * usual.transfer + 100 * transfer * usual.forward,
        }
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
    /// Two per rank after it, as ZB-H2.
    Twice,
}

impl Ahead {
    const ALL: [Ahead; 4] = [Ahead::AsOneForwardOneBackward, Ahead::WithoutDelay, Ahead::WithoutWait, Ahead::Twice];

    /// The forward passes that a rank runs ahead; the argument is the number of ranks after it.
    fn forwards(self, behind: usize, times: &CellTimes) -> usize {
        let forward = times.forward.max(1);
        // From the start of the first forward until its gradient is back.
        let round_trip = (behind + 1) * forward + behind * (times.backward_input + 2 * times.transfer);
        let filling = match self {
            Ahead::AsOneForwardOneBackward => 0,
            Ahead::WithoutDelay => round_trip / forward - 1,
            Ahead::WithoutWait => round_trip.div_ceil(forward) - 1,
            Ahead::Twice => 2 * behind,
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
