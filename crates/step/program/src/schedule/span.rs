//! How long a schedule takes, from its first cell to its last, whose stages take different times.

use super::{Cell, CellKind, Schedule, StageCosts};
use crate::run_in_turns;

/// The end of the last cell of all ranks, each started as soon as its rank and its inputs are free: the norm, which
/// ends a step, waits for it.
///
/// A cell that can never start is left out.
pub(super) fn span(schedule: &Schedule, costs: &StageCosts) -> usize {
    spans(schedule, costs).into_iter().map(|(_, end)| end).max().unwrap_or(0)
}

/// The end of the last cell of all ranks, and of the later of the first and the last rank: where these two share a tied
/// table, they sum its gradients before the norm.
pub(super) fn ends(schedule: &Schedule, costs: &StageCosts) -> [usize; 2] {
    let all: Vec<usize> = spans(schedule, costs).into_iter().map(|(_, end)| end).collect();
    let [first, last] = [all.first(), all.last()].map(|end| end.copied().unwrap_or(0));
    [all.into_iter().max().unwrap_or(0), first.max(last)]
}

/// The time of the slowest rank from the start of its first cell to the end of its last.
pub(super) fn slowest_rank(schedule: &Schedule, costs: &StageCosts) -> usize {
    spans(schedule, costs).into_iter().map(|(start, end)| end - start).max().unwrap_or(0)
}

/// The start of each rank's first cell and the end of its last.
fn spans(schedule: &Schedule, costs: &StageCosts) -> Vec<(usize, usize)> {
    let cells = schedule.ranks.iter().flatten();
    let num_microbatches = cells.map(|cell| cell.microbatch.0 as usize + 1).max().unwrap_or(0);
    let none = vec![None; schedule.num_stages() * num_microbatches];
    // When outputs and gradients of inputs are where they are needed, by stage, then by microbatch.
    let mut there: [Vec<Option<usize>>; 2] = [none.clone(), none];
    let mut rows = vec![Row::default(); schedule.ranks.len()];
    run_in_turns(schedule.ranks.len(), |rank| {
        let Row { placed, start, end: now, sent } = rows[rank];
        let Some(&cell) = schedule.ranks[rank].get(placed) else { return false };
        let Some(arrival) = arrival(schedule, &there, num_microbatches, cell) else { return false };
        let end = arrival.max(now) + costs.of(cell.stage).times.of(cell.kind);
        let mut sent = sent;
        if let Some(made) = made(cell.kind) {
            let transfer = reader(schedule, cell).map_or(0, |to| costs.usual.times.between(rank, to));
            // One transfer after the other.
            let at = if transfer > 0 { sent.max(end) + transfer } else { end };
            sent = sent.max(at);
            there[made][cell.stage.0 as usize * num_microbatches + cell.microbatch.0 as usize] = Some(at);
        }
        rows[rank] = Row { placed: placed + 1, start: start.or(Some(arrival.max(now))), end, sent };
        true
    });
    rows.into_iter().map(|row| (row.start.unwrap_or(0), row.end)).collect()
}

/// How far a rank is.
#[derive(Clone, Copy, Default)]
struct Row {
    placed: usize,
    start: Option<usize>,
    end: usize,
    /// When its last transfer has arrived.
    sent: usize,
}

const OUTPUTS: usize = 0;
const INPUT_GRADS: usize = 1;

/// Which of the values that other stages read a cell makes.
fn made(kind: CellKind) -> Option<usize> {
    match kind {
        CellKind::F => Some(OUTPUTS),
        CellKind::B | CellKind::I => Some(INPUT_GRADS),
        CellKind::W => None,
    }
}

/// The rank of the stage that reads what a cell makes for another one.
fn reader(schedule: &Schedule, cell: Cell) -> Option<usize> {
    let stage = cell.stage.0 as usize;
    let to = match cell.kind {
        CellKind::F => Some(stage + 1),
        CellKind::B | CellKind::I => stage.checked_sub(1),
        CellKind::W => None,
    };
    to.and_then(|stage| schedule.stage_map.get(stage).copied())
}

/// When the input of a cell is on its rank; `None` while that is not known.
fn arrival(schedule: &Schedule, there: &[Vec<Option<usize>>; 2], num_microbatches: usize, cell: Cell) -> Option<usize> {
    let stage = cell.stage.0 as usize;
    let source = match cell.kind {
        CellKind::F => stage.checked_sub(1),
        CellKind::B | CellKind::I => Some(stage + 1).filter(|next| *next < schedule.num_stages()),
        CellKind::W => None,
    };
    let Some(source) = source else { return Some(0) };
    there[made(cell.kind)?][source * num_microbatches + cell.microbatch.0 as usize]
}

#[cfg(test)]
mod tests {
    use super::super::{CellCosts, CellTimes, Timeline, one_forward_one_backward, zero_bubble_h1, zero_bubble_v};
    use super::*;

    #[test]
    fn stages_that_are_alike_take_as_long_as_on_the_timeline() {
        let times = CellTimes { forward: 4, backward_input: 5, backward_weight: 3, transfer: 1 };
        let costs = StageCosts::from(CellCosts { times, ..CellCosts::EVEN });
        for schedule in [one_forward_one_backward(4, 7), zero_bubble_h1(4, 7), zero_bubble_v(3, 6, &costs.usual)] {
            assert_eq!(span(&schedule, &costs), Timeline::new(&schedule, times).makespan(), "{schedule}");
        }
    }

    #[test]
    fn a_stage_that_takes_longer_decides() {
        let slow = CellCosts { times: CellTimes { forward: 10, ..CellTimes::EVEN }, ..CellCosts::EVEN };
        let costs = StageCosts { stages: vec![CellCosts::EVEN, slow], ..StageCosts::EVEN };
        // Before the slow stage one forward, after it one backward of both kinds; ten and two of its own, seven times.
        assert_eq!(span(&one_forward_one_backward(2, 7), &costs), 1 + 7 * 12 + 2);
    }

    #[test]
    fn transfers_of_a_rank_follow_each_other() {
        let times = CellTimes { transfer: 10, ..CellTimes::EVEN };
        let costs = StageCosts::from(CellCosts { times, ..CellCosts::EVEN });
        // Two forwards on the first rank are sent by 11 and by 21, and two more passes of the second microbatch follow
        // on the second rank. Its gradient comes back 10 later, and one backward of both kinds follows.
        assert_eq!(span(&one_forward_one_backward(2, 2), &costs), 21 + 3 + 10 + 2);
    }
}
