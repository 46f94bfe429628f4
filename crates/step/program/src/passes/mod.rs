//! From schedule to programs, in short passes: cells, units, recomputation, offload, gathers, transfers, loads, tail.

mod gathers;
mod loads;
mod offload;
mod recompute;
mod save;
mod summed;
mod tail;
mod transfers;
mod units;

use std::sync::Arc;

use config::{Averages, GradientSums, Masters, ModelSpec, Offload, Parallelism, PerClass, Recompute, UnitAxes};

pub(crate) use crate::sizes::STAGED_UNITS;
pub use save::{save_instrs, saved_units};
use summed::summed;

use crate::{Declared, Program, Purpose, RankView, Schedule, StageSplit};

/// Input of [`compile`]: the model, the layout and the order of cells.
#[derive(Clone, Copy, Debug)]
pub struct CompileInput<'a> {
    pub model: &'a ModelSpec,
    /// Degrees, ZeRO stage, recomputation.
    pub parallelism: &'a Parallelism,
    /// Layers of each stage.
    pub stages: &'a StageSplit,
    /// Order of cells; for purposes other than training, only its forward cells count.
    pub schedule: &'a Schedule,
    /// Where the weights are that the optimizer updates.
    pub masters: Masters,
    /// Whether the optimizer averages them.
    pub averages: Averages,
    /// The data type in which gradients are summed.
    pub sums: GradientSums,
    /// The choice of what is in memory of the host between its uses.
    pub offload: Offload,
    /// The purpose of the programs.
    pub purpose: Purpose,
    /// Microbatches of a step.
    pub num_microbatches: usize,
}

/// The reason why an input cannot be compiled. [`crate::verify`] may still refuse a compiled program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// There is nothing to compute.
    #[error(
        "a step needs at least one microbatch; give it a larger batch, fewer replicas or a smaller microbatch size"
    )]
    NoMicrobatches,
    /// Schedule and parallelism disagree.
    #[error(
        "the schedule has {schedule} ranks, the pipeline has {pp}; make a schedule for {pp} ranks or set pp = {schedule}"
    )]
    Ranks {
        /// Ranks of the schedule.
        schedule: usize,
        /// Degree of pipeline parallelism.
        pp: usize,
    },
    /// Schedule and stage split disagree.
    #[error("the schedule has {schedule} stages, the layers are split into {split}; split them into {schedule}")]
    Stages {
        /// Stages of the schedule.
        schedule: usize,
        /// Stages of the split.
        split: usize,
    },
    /// Model and stage split disagree.
    #[error("the stages have {split} layers together, the model has {model}; split {model} layers")]
    Layers {
        /// Layers of the split.
        split: usize,
        /// Layers of the model.
        model: usize,
    },
    /// A stage is placed outside the pipeline.
    #[error("stage {stage} is placed on pipeline rank {rank}, the pipeline has {pp}; place it on 0 to {}", pp - 1)]
    StageMap {
        /// The stage.
        stage: usize,
        /// Where it is placed.
        rank: usize,
        /// Degree of pipeline parallelism.
        pp: usize,
    },
    /// A cell is on a rank that does not have its stage.
    #[error("cell {cell} is on pipeline rank {rank}, but its stage is placed on rank {owner}; move it there")]
    ForeignCell {
        /// The cell as text.
        cell: String,
        /// The rank in whose list it is.
        rank: usize,
        /// The rank of its stage.
        owner: usize,
    },
    /// A cell names a stage or microbatch that does not exist.
    #[error("cell {cell} is outside {stages} stages and {num_microbatches} microbatches; correct the schedule")]
    UnknownCell {
        /// The cell as text.
        cell: String,
        /// Number of stages.
        stages: usize,
        /// Number of microbatches.
        num_microbatches: usize,
    },
}

/// The programs of a step, one per pipeline coordinate.
///
/// There is no dp and no tp coordinate in scope, so ranks that differ along those axes have equal programs.
///
/// # Errors
/// Sizes that do not fit together; see [`CompileError`].
pub fn compile(input: &CompileInput) -> Result<Vec<Program>, CompileError> {
    check(input)?;
    let declared = Arc::new(Declared::new(input.model, input.parallelism));
    Ok((0..input.schedule.ranks.len()).map(|pp| program(input, pp, &declared)).collect())
}

/// The program of one pipeline coordinate: that of [`compile`].
///
/// # Errors
/// The errors of [`compile`].
///
/// # Panics
/// A coordinate that is not below `pp`.
pub fn compile_rank(input: &CompileInput, pp: usize) -> Result<Program, CompileError> {
    check(input)?;
    Ok(program(input, pp, &Arc::new(Declared::new(input.model, input.parallelism))))
}

fn program(input: &CompileInput, pp: usize, declared: &Arc<Declared>) -> Program {
    let (view, cells) = (view(input, pp, declared), &input.schedule.ranks[pp]);
    let instrs = units::expand(cells, input.stages, view.purpose);
    let instrs = recompute::insert(instrs, &view);
    let instrs = offload::insert(instrs, &view);
    let instrs = gathers::insert(instrs, &view);
    let instrs = transfers::insert(instrs, &view, cells, input.stages);
    let instrs = loads::insert(instrs, &view);
    let instrs = tail::append(instrs, &view, &summed(input));
    Program { view, instrs }
}

fn view(input: &CompileInput, pp: usize, declared: &Arc<Declared>) -> RankView {
    let classes = input.model.classes();
    let units = config::Unit::computing(input.model.num_layers);
    let owners = units.map(|unit| input.schedule.stage_map[input.stages.stage_of(unit).0 as usize]).collect();
    RankView {
        pp,
        pipeline_size: input.parallelism.degrees.pp,
        owners,
        tied: input.model.tied(),
        top_query: input.model.top_query,
        purpose: input.purpose,
        recompute: match input.purpose {
            Purpose::Train => input.parallelism.recompute_to_do(),
            Purpose::Evaluate | Purpose::Generate => Recompute::None,
        },
        zero: input.parallelism.zero,
        axes: PerClass::new(&classes, |class| {
            UnitAxes::of(&config::params(input.model, classes.first(class)), input.parallelism.axis_sizes())
        }),
        masters: input.masters,
        averages: input.averages,
        sums: input.sums,
        offload: input.offload,
        num_microbatches: input.num_microbatches,
        declared: Arc::clone(declared),
    }
}

fn check(input: &CompileInput) -> Result<(), CompileError> {
    let CompileInput { model, parallelism, stages, schedule, num_microbatches, .. } = *input;
    let pp = parallelism.degrees.pp;
    if num_microbatches == 0 {
        return Err(CompileError::NoMicrobatches);
    }
    if schedule.ranks.len() != pp {
        return Err(CompileError::Ranks { schedule: schedule.ranks.len(), pp });
    }
    if schedule.num_stages() != stages.num_stages() {
        return Err(CompileError::Stages { schedule: schedule.num_stages(), split: stages.num_stages() });
    }
    if stages.num_layers() != model.num_layers {
        return Err(CompileError::Layers { split: stages.num_layers(), model: model.num_layers });
    }
    if let Some((stage, &rank)) = schedule.stage_map.iter().enumerate().find(|(_, rank)| **rank >= pp) {
        return Err(CompileError::StageMap { stage, rank, pp });
    }
    for (rank, cells) in schedule.ranks.iter().enumerate() {
        for cell in cells {
            let known = (cell.microbatch.0 as usize) < num_microbatches;
            match schedule.stage_map.get(cell.stage.0 as usize) {
                Some(&owner) if owner != rank => {
                    return Err(CompileError::ForeignCell { cell: cell.to_string(), rank, owner });
                }
                Some(_) if known => {}
                _ => {
                    let stages = schedule.num_stages();
                    return Err(CompileError::UnknownCell { cell: cell.to_string(), stages, num_microbatches });
                }
            }
        }
    }
    Ok(())
}
