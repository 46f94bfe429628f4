//! Schedules: the order of compute cells on each pipeline rank. A generator is a pure function in a file of its own.

mod gpipe;
mod one_forward_one_backward;
mod text;
mod timeline;

use spec::{Microbatch, ScheduleKind, Stage};

pub use gpipe::gpipe;
pub use one_forward_one_backward::one_forward_one_backward;
pub use text::ScheduleTextError;
pub use timeline::{CellTimes, Timeline};

/// What a cell computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CellKind {
    /// Forward.
    F,
    /// Full backward: [`CellKind::I`] and [`CellKind::W`], unit by unit.
    B,
    /// Backward of the input.
    I,
    /// Backward of the weights.
    W,
}

/// One compute cell, printed as `2F0`: stage 2, forward, microbatch 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cell {
    /// What is computed.
    pub kind: CellKind,
    /// By which stage.
    pub stage: Stage,
    /// For which microbatch.
    pub microbatch: Microbatch,
}

impl Cell {
    /// The cell `stage kind microbatch`.
    pub fn new(stage: usize, kind: CellKind, microbatch: usize) -> Cell {
        Cell { kind, stage: Stage(stage as u32), microbatch: Microbatch(microbatch as u32) }
    }
}

/// Compute cells per pipeline rank, in order. There may be several stages per rank, placed anyhow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Cells of each pipeline rank.
    pub ranks: Vec<Vec<Cell>>,
    /// Pipeline rank of each stage.
    pub placement: Vec<usize>,
}

impl Schedule {
    /// The schedule of this kind for `pp` ranks of one stage each.
    pub fn generate(kind: ScheduleKind, pp: usize, num_microbatches: usize) -> Schedule {
        match kind {
            ScheduleKind::GPipe => gpipe(pp, num_microbatches),
            ScheduleKind::OneForwardOneBackward => one_forward_one_backward(pp, num_microbatches),
        }
    }

    /// Number of stages.
    pub fn num_stages(&self) -> usize {
        self.placement.len()
    }
}
