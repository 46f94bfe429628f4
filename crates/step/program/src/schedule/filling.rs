//! Placing backward passes of the weights: they may run at any time after those of the input, so they fill waits.

use std::collections::VecDeque;

use super::{Cell, CellCosts, CellKind, Schedule, StageCosts};
use crate::run_in_turns;

/// A rank that would wait for at least this many quarters of a backward of the weights runs one instead. Where the wait
/// is shorter than the whole, the rest delays what comes next. Each is tried.
const QUARTERS: [usize; 5] = [0, 1, 2, 3, 4];

/// The fillings with each share. `order` has forwards and backwards of the input, such that some rank can always
/// continue; it stays as it is. Backwards of the weights are put in, first come, first served: where a rank would wait,
/// where it would hold more than its limit (in the unit of `costs`), and at the end.
///
/// This is the rule of Qi et al. (Zero Bubble Pipeline Parallelism, section 3.1) for a given order of the rest.
pub(super) fn fillings(order: &Schedule, costs: &StageCosts, limits: &[usize]) -> [Schedule; 5] {
    QUARTERS.map(|quarters| Filling::new(order, costs, limits, quarters).run())
}

struct Filling<'a> {
    order: &'a Schedule,
    costs: &'a StageCosts,
    /// By rank.
    limits: &'a [usize],
    quarters: usize,
    rows: Vec<Row>,
    num_microbatches: usize,
    /// When what a forward or a backward of the input makes is there: by kind, then by stage, then by microbatch.
    ends: [Vec<Option<usize>>; 2],
}

/// How far a rank is.
#[derive(Default)]
struct Row {
    cells: Vec<Cell>,
    /// Cells of the given order that are placed.
    placed: usize,
    now: usize,
    held: usize,
    /// Backwards of the weights that may run.
    pending: VecDeque<Cell>,
}

impl<'a> Filling<'a> {
    fn new(order: &'a Schedule, costs: &'a StageCosts, limits: &'a [usize], quarters: usize) -> Filling<'a> {
        let rows = order.ranks.iter().map(|_| Row::default()).collect();
        let microbatches = order.ranks.iter().flatten().map(|cell| cell.microbatch.0 as usize + 1);
        let num_microbatches = microbatches.max().unwrap_or(0);
        let none = vec![None; order.stage_map.len() * num_microbatches];
        Filling { order, costs, limits, quarters, rows, num_microbatches, ends: [none.clone(), none] }
    }

    /// Where the end of what a cell makes for the cell of the same kind on another stage is.
    fn place_of_end(&self, cell: Cell, stage: usize) -> (usize, usize) {
        (usize::from(cell.kind == CellKind::F), stage * self.num_microbatches + cell.microbatch.0 as usize)
    }

    fn run(mut self) -> Schedule {
        run_in_turns(self.rows.len(), |rank| {
            let Some(&cell) = self.order.ranks[rank].get(self.rows[rank].placed) else { return false };
            let Some(arrival) = self.arrival(cell) else { return false };
            self.make_room(rank, cell, arrival);
            self.place(rank, cell, arrival);
            self.rows[rank].placed += 1;
            true
        });
        for rank in 0..self.rows.len() {
            while self.weights(rank) {}
        }
        let ranks = self.rows.into_iter().map(|row| row.cells).collect();
        Schedule { ranks, stage_map: self.order.stage_map.clone() }
    }

    /// When the input of a cell is on its rank; `None` while that is not known.
    fn arrival(&self, cell: Cell) -> Option<usize> {
        let stage_map = &self.order.stage_map;
        let stage = cell.stage.0 as usize;
        let source = match cell.kind {
            CellKind::F => stage.checked_sub(1),
            CellKind::I | CellKind::B => Some(stage + 1).filter(|next| *next < stage_map.len()),
            CellKind::W => None,
        };
        let Some(source) = source else { return Some(0) };
        let (kind, place) = self.place_of_end(cell, source);
        Some(self.ends[kind][place]? + self.costs.usual.times.between(stage_map[source], stage_map[stage]))
    }

    /// Backwards of the weights before a cell that can start at `arrival`.
    fn make_room(&mut self, rank: usize, cell: Cell, arrival: usize) {
        let least_wait = (self.costs.of(cell.stage).times.backward_weight * self.quarters / 4).max(1);
        loop {
            let Row { now, held, .. } = self.rows[rank];
            let is_full = self.held_after(held, cell) > self.limits[rank];
            let waits = arrival >= now + least_wait;
            if !(is_full || waits) || !self.weights(rank) {
                break;
            }
        }
    }

    fn held_after(&self, held: usize, cell: Cell) -> usize {
        let CellCosts { held_until_input, held_until_weight, .. } = *self.costs.of(cell.stage);
        match cell.kind {
            CellKind::F => held + held_until_input,
            CellKind::I => held + held_until_weight - held_until_input,
            CellKind::W => held - held_until_weight,
            CellKind::B => held - held_until_input,
        }
    }

    /// Runs the first backward of the weights that may run; whether there was one.
    fn weights(&mut self, rank: usize) -> bool {
        match self.rows[rank].pending.pop_front() {
            None => false,
            Some(cell) => {
                self.place(rank, cell, 0);
                true
            }
        }
    }

    fn place(&mut self, rank: usize, cell: Cell, arrival: usize) {
        let held = self.held_after(self.rows[rank].held, cell);
        let state = &mut self.rows[rank];
        let start = arrival.max(state.now);
        state.now = start + self.costs.of(cell.stage).times.of(cell.kind);
        state.held = held;
        state.cells.push(cell);
        match cell.kind {
            CellKind::F | CellKind::B => {}
            CellKind::I => state.pending.push_back(Cell { kind: CellKind::W, ..cell }),
            CellKind::W => return,
        }
        let end = state.now;
        let (kind, place) = self.place_of_end(cell, cell.stage.0 as usize);
        self.ends[kind][place] = Some(end);
    }
}
