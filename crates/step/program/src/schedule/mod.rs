//! Schedules: the order of compute cells on each pipeline rank. A generator is a pure function in a file of its own.

mod filling;
mod forward_only;
mod given;
mod gpipe;
mod interleaved;
mod one_forward_one_backward;
mod span;
mod split;
mod text;
mod timeline;
mod zero_bubble_auto;
mod zero_bubble_h1;
mod zero_bubble_h2;
mod zero_bubble_v;

use config::{Microbatch, ScheduleKind, ScheduleSpec, Stage};

use crate::{ContributionOrder, Updates};
pub use forward_only::forward_only;
pub use given::GivenScheduleError;
pub use gpipe::gpipe;
pub use interleaved::interleaved;
pub use one_forward_one_backward::one_forward_one_backward;
pub use text::ScheduleTextError;
pub use timeline::{CellTimes, Timeline};
pub use zero_bubble_auto::zero_bubble_auto;
pub use zero_bubble_h1::zero_bubble_h1;
pub use zero_bubble_h2::zero_bubble_h2;
pub use zero_bubble_v::zero_bubble_v;

/// The computation of a cell.
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
    /// The computed part.
    pub kind: CellKind,
    /// The stage that the microbatch passes.
    pub stage: Stage,
    /// The microbatch, from 0.
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
    pub stage_map: Vec<usize>,
}

/// Costs of the cells of one stage, as generators read them. Only proportions count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellCosts {
    /// How long they take.
    pub times: CellTimes,
    /// Bytes that a microbatch holds on a stage from its forward to its backward of the input.
    pub held_until_input: usize,
    /// Bytes that it holds from then to its backward of the weights.
    pub held_until_weight: usize,
}

impl CellCosts {
    /// All passes take one unit, transfers none, and a microbatch holds as much before its backward of the input as
    /// after.
    pub const EVEN: CellCosts = CellCosts { times: CellTimes::EVEN, held_until_input: 1, held_until_weight: 1 };
}

/// Costs of the cells of all stages, for generators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageCosts {
    /// Of a stage as stages mostly are.
    pub usual: CellCosts,
    /// Of each stage; nothing where all are alike.
    pub stages: Vec<CellCosts>,
    /// Whether ranks wait for each other at the end of a step.
    pub updates: Updates,
}

impl StageCosts {
    /// All stages are [`CellCosts::EVEN`].
    pub const EVEN: StageCosts = StageCosts { usual: CellCosts::EVEN, stages: vec![], updates: Updates::AfterNorm };

    /// The costs of one stage.
    pub fn of(&self, stage: Stage) -> &CellCosts {
        self.stages.get(stage.0 as usize).unwrap_or(&self.usual)
    }
}

impl From<CellCosts> for StageCosts {
    fn from(usual: CellCosts) -> StageCosts {
        StageCosts { usual, stages: vec![], updates: Updates::AfterNorm }
    }
}

/// Why there is no schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// The microbatches do not make whole groups.
    #[error(
        "{num_microbatches} microbatches are not whole groups of {group}, in which the schedule passes them; use {}",
        num_microbatches.next_multiple_of(*group)
    )]
    MicrobatchGroups {
        /// Microbatches of a step.
        num_microbatches: usize,
        /// Microbatches that pass together.
        group: usize,
    },
    /// A file that is not a schedule of this run.
    #[error("{path}: {error}")]
    Given {
        /// The file.
        path: String,
        /// The error.
        error: GivenScheduleError,
    },
}

impl Schedule {
    /// The schedule that a run asks for, on `pp` ranks.
    ///
    /// # Errors
    /// See [`ScheduleError`].
    pub fn new(
        spec: &ScheduleSpec,
        pp: usize,
        num_microbatches: usize,
        costs: &StageCosts,
    ) -> Result<Schedule, ScheduleError> {
        match spec {
            ScheduleSpec::Generated(kind) => {
                let group = kind.microbatch_group(pp);
                match num_microbatches.is_multiple_of(group) {
                    true => Ok(Schedule::generate(*kind, pp, num_microbatches, costs)),
                    false => Err(ScheduleError::MicrobatchGroups { num_microbatches, group }),
                }
            }
            ScheduleSpec::Given(given) => given::read(&given.text, pp, num_microbatches)
                .map_err(|error| ScheduleError::Given { path: given.path.display().to_string(), error }),
        }
    }

    /// The schedule of this kind.
    ///
    /// # Panics
    /// Microbatches that are not a multiple of [`ScheduleKind::microbatch_group`].
    pub fn generate(kind: ScheduleKind, pp: usize, num_microbatches: usize, costs: &StageCosts) -> Schedule {
        match kind {
            ScheduleKind::GPipe => gpipe(pp, num_microbatches),
            ScheduleKind::OneForwardOneBackward => one_forward_one_backward(pp, num_microbatches),
            ScheduleKind::Interleaved { stages_per_rank } => interleaved(pp, num_microbatches, stages_per_rank),
            ScheduleKind::ZeroBubbleH1 => zero_bubble_h1(pp, num_microbatches),
            ScheduleKind::ZeroBubbleH2 => zero_bubble_h2(pp, num_microbatches),
            ScheduleKind::ZeroBubbleV => zero_bubble_v(pp, num_microbatches, &costs.usual),
            ScheduleKind::ZeroBubbleAuto { memory_percent } => {
                zero_bubble_auto(pp, num_microbatches, memory_percent, costs)
            }
        }
    }

    /// Number of stages.
    pub fn num_stages(&self) -> usize {
        self.stage_map.len()
    }

    /// Whether every gradient gets its contributions in ascending order of microbatches, as all generated schedules do.
    /// The head's come with its forward.
    pub fn contribution_order(&self) -> ContributionOrder {
        let last = self.num_stages().saturating_sub(1);
        let contributes = |cell: &Cell| match cell.kind {
            CellKind::B | CellKind::W => true,
            CellKind::F => cell.stage.0 as usize == last,
            CellKind::I => false,
        };
        let mut latest = std::collections::BTreeMap::new();
        let mut cells = self.ranks.iter().flatten().filter(|cell| contributes(cell));
        let is_ascending = cells.all(|cell| {
            let before = latest.insert((cell.stage, cell.kind == CellKind::F), cell.microbatch);
            before.is_none_or(|before| before < cell.microbatch)
        });
        if is_ascending { ContributionOrder::Ascending } else { ContributionOrder::Any }
    }
}
