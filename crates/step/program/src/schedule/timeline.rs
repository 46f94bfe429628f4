//! A schedule over time, as text: cells of given length, each started as soon as its rank and its inputs are free.

use std::collections::HashMap;
use std::fmt;

use super::{Cell, CellKind, Schedule};
use crate::run_in_turns;

/// Length of each kind of cell, in columns where it is drawn; a full backward takes `backward_input + backward_weight`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellTimes {
    pub forward: usize,
    pub backward_input: usize,
    pub backward_weight: usize,
    /// From the end of a cell until what it made is on another rank.
    pub transfer: usize,
}

impl CellTimes {
    /// All passes take one unit, transfers none.
    pub const EVEN: CellTimes = CellTimes { forward: 1, backward_input: 1, backward_weight: 1, transfer: 0 };

    /// A transfer between two ranks; nothing if they are the same.
    pub(super) fn between(&self, from: usize, to: usize) -> usize {
        if from == to { 0 } else { self.transfer }
    }

    pub(super) fn of(&self, kind: CellKind) -> usize {
        match kind {
            CellKind::F => self.forward,
            CellKind::B => self.backward_input + self.backward_weight,
            CellKind::I => self.backward_input,
            CellKind::W => self.backward_weight,
        }
    }
}

/// When each cell starts and ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    /// Per rank: cell, start, end, in columns.
    pub ranks: Vec<Vec<(Cell, usize, usize)>>,
}

impl Timeline {
    /// Times of the cells of `schedule`. Cells that can never start are left out.
    pub fn new(schedule: &Schedule, times: CellTimes) -> Timeline {
        let last_stage = schedule.num_stages().saturating_sub(1) as u32;
        let mut ends: HashMap<(Done, u32, u32), usize> = HashMap::new();
        let mut ranks: Vec<Vec<(Cell, usize, usize)>> = vec![vec![]; schedule.ranks.len()];
        run_in_turns(schedule.ranks.len(), |rank| {
            let placed = &mut ranks[rank];
            let Some(&cell) = schedule.ranks[rank].get(placed.len()) else { return false };
            let rank_of = |stage: u32| schedule.stage_map[stage as usize];
            let arrival = |input: (Done, u32, u32)| {
                Some(ends.get(&input)? + times.between(rank_of(input.1), rank_of(cell.stage.0)))
            };
            let inputs = inputs(cell, last_stage).into_iter().flatten();
            let Some(ready) = inputs.map(arrival).try_fold(0, |ready, end| Some(ready.max(end?))) else {
                return false;
            };
            let start = ready.max(placed.last().map_or(0, |(_, _, end)| *end));
            let end = start + times.of(cell.kind);
            for done in done(cell.kind) {
                ends.insert((*done, cell.stage.0, cell.microbatch.0), end);
            }
            placed.push((cell, start, end));
            true
        });
        Timeline { ranks }
    }

    /// End of the last cell.
    pub fn makespan(&self) -> usize {
        self.ranks.iter().flatten().map(|(_, _, end)| *end).max().unwrap_or(0)
    }

    /// Columns in which a rank waits, until the last cell of all has ended.
    pub fn idle(&self, rank: usize) -> usize {
        let busy: usize = self.ranks.get(rank).into_iter().flatten().map(|(_, start, end)| end - start).sum();
        self.makespan() - busy
    }
}

/// The product of a cell that others need.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Done {
    Forward,
    Input,
}

fn done(kind: CellKind) -> &'static [Done] {
    match kind {
        CellKind::F => &[Done::Forward],
        CellKind::B | CellKind::I => &[Done::Input],
        CellKind::W => &[],
    }
}

fn inputs(cell: Cell, last_stage: u32) -> [Option<(Done, u32, u32)>; 2] {
    let (stage, microbatch) = (cell.stage.0, cell.microbatch.0);
    match cell.kind {
        CellKind::F => [stage.checked_sub(1).map(|before| (Done::Forward, before, microbatch)), None],
        CellKind::B | CellKind::I => [
            Some((Done::Forward, stage, microbatch)),
            (stage < last_stage).then_some((Done::Input, stage + 1, microbatch)),
        ],
        CellKind::W => [Some((Done::Input, stage, microbatch)), None],
    }
}

impl fmt::Display for Timeline {
    /// One line per rank. A cell shows its kind and, as far as there is room, its microbatch; where ranks have several
    /// stages, stages past the first are in lower case. Waiting is `.`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.makespan();
        for (rank, cells) in self.ranks.iter().enumerate() {
            let mut line = vec![b'.'; width];
            let first_stage = cells.iter().map(|(cell, _, _)| cell.stage).min();
            for (cell, start, end) in cells {
                let text = format!("{}{}", cell.kind, cell.microbatch.0);
                let text = if Some(cell.stage) == first_stage { text } else { text.to_lowercase() };
                let filled = text.bytes().chain(std::iter::repeat(b'-'));
                for (column, byte) in line[*start..*end].iter_mut().zip(filled) {
                    *column = byte;
                }
            }
            let line: String = line.into_iter().map(char::from).collect();
            writeln!(f, "rank {rank:>2} |{}|", line)?;
        }
        Ok(())
    }
}
