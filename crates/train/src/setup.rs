//! Everything about a run that is decided before a rank starts: mesh, programs, memory plans, layouts.

use std::collections::BTreeMap;

use device::Write;
use mesh::{Mesh, MeshError};
use model::{MicrobatchShape, Phase, RecordCase, RecordError, TensorParallel, record_unit};
use program::{
    CompileError, CompileInput, ContributionOrder, Demands, Program, Purpose, RankPlan, Schedule, Sizes, StageError,
    StageSplit, State, UnitWork, Verified, Violation, compile, link, split_stages, verify,
};
use spec::unit::UnitKind;
use spec::{ModelSpec, Parallelism, Recompute, TrainSpec, Unit, UnitLayout, params};
use thiserror::Error;

/// A run that is ready to start: verified programs and planned memory.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What is learned.
    pub model: ModelSpec,
    /// How it is spread.
    pub parallelism: Parallelism,
    /// How it is optimised.
    pub train: TrainSpec,
    /// The ranks.
    pub mesh: Mesh,
    /// Flat buffers of all units; empty for a unit without parameters.
    pub layouts: BTreeMap<Unit, UnitLayout>,
    /// One program and one memory plan per pipeline coordinate.
    pub verified: Verified,
}

/// Why a run cannot be prepared.
#[derive(Debug, Error)]
pub enum SetupError {
    /// The degrees do not make a mesh.
    #[error(transparent)]
    Mesh(#[from] MeshError),
    /// The layers do not make stages.
    #[error(transparent)]
    Stages(#[from] StageError),
    /// The schedule does not fit the pipeline.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// The microbatches do not make the batch.
    #[error(
        "a global batch of {global_batch} sequences is no multiple of dp {dp} x microbatch size {microbatch_size}; change one of the three"
    )]
    Batch {
        /// Sequences per step.
        global_batch: usize,
        /// Replicas.
        dp: usize,
        /// Sequences per microbatch.
        microbatch_size: usize,
    },
    /// A unit's code could not be recorded.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The program breaks rules; a fault of the schedule.
    #[error("the program is refused:{}", list(.0))]
    Refused(Vec<Violation>),
}

fn list(violations: &[Violation]) -> String {
    violations.iter().map(|violation| format!("\n  {violation}")).collect()
}

impl Setup {
    /// Compiles, verifies and plans a run. Legal degrees are the caller's matter (`spec::check`); what is not legal is refused
    /// here too, less kindly.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub fn new(model: ModelSpec, parallelism: Parallelism, train: TrainSpec) -> Result<Setup, SetupError> {
        let (global_batch, dp, microbatch_size) = (train.global_batch, parallelism.dp, parallelism.microbatch_size);
        if global_batch == 0 || !global_batch.is_multiple_of(dp * microbatch_size) {
            return Err(SetupError::Batch { global_batch, dp, microbatch_size });
        }
        let num_microbatches = parallelism.num_microbatches(global_batch);
        let shape = MicrobatchShape { sequences: parallelism.microbatch_size, sequence_length: train.sequence_length };
        // All tensor-parallel ranks need equally many bytes, so the first stands for all.
        let tp = TensorParallel { size: parallelism.tp, position: 0 };
        let footprints = model::footprints(&model, tp, shape, Purpose::Train)?;
        let stages = match &parallelism.stage_layers {
            Some(layers) => StageSplit::given(layers, model.num_layers, parallelism.pp)?,
            None => split_stages(model.num_layers, parallelism.pp, unit_work(&model, &parallelism, shape)?)?,
        };
        let schedule = Schedule::generate(parallelism.schedule, parallelism.pp, num_microbatches);
        let input = CompileInput {
            model: &model,
            parallelism: &parallelism,
            stages: &stages,
            schedule: &schedule,
            purpose: Purpose::Train,
            num_microbatches,
        };
        let graph = link(compile(&input)?).map_err(SetupError::Refused)?;
        let sizes = Sizes::new(&model, &parallelism, footprints, State::Training);
        let verified = verify(graph, &sizes, Demands { capacity_bytes: None, order: ContributionOrder::Ascending })
            .map_err(SetupError::Refused)?;
        let mesh = parallelism.mesh()?;
        let layouts = layouts(&model, &parallelism);
        Ok(Setup { model, parallelism, train, mesh, layouts, verified })
    }

    /// The program of pipeline rank `stage`.
    pub fn program(&self, stage: usize) -> &Program {
        &self.verified.programs()[stage]
    }

    /// The memory plan of pipeline rank `stage`.
    pub fn plan(&self, stage: usize) -> &RankPlan {
        &self.verified.plan().ranks[stage]
    }

    /// Microbatches per step and replica.
    pub fn num_microbatches(&self) -> usize {
        self.parallelism.num_microbatches(self.train.global_batch)
    }

    /// The constant that the backward pass divides by: tokens of a step if every label were valid. The exact number
    /// of valid labels enters with the clip coefficient.
    pub fn nominal_tokens(&self) -> f64 {
        (self.train.global_batch * self.train.sequence_length) as f64
    }

    /// Sizes of a microbatch.
    pub fn shape(&self) -> MicrobatchShape {
        MicrobatchShape { sequences: self.parallelism.microbatch_size, sequence_length: self.train.sequence_length }
    }
}

/// The flat buffers of all units.
pub fn layouts(model: &ModelSpec, parallelism: &Parallelism) -> BTreeMap<Unit, UnitLayout> {
    std::iter::once(Unit::Table)
        .chain(Unit::computing(model.num_layers))
        .map(|unit| (unit, UnitLayout::new(params(model, unit), parallelism.tp, parallelism.dp)))
        .collect()
}

/// Multiply-adds that a core does in the time in which it moves one byte: 80 G multiply-adds and 20 GB a second.
const MULTIPLY_ADDS_PER_BYTE: u64 = 4;

/// The functions of a unit that a training step calls.
fn phases(recompute: Recompute) -> &'static [Phase] {
    match recompute {
        Recompute::None => &[Phase::Forward, Phase::BackwardInput, Phase::BackwardWeight],
        Recompute::Full => &Phase::ALL,
    }
}

/// Work of each unit in a step (forward and both backward passes), for balancing stages: multiply-adds, and moved bytes as
/// the multiply-adds that take as long.
fn unit_work(model: &ModelSpec, parallelism: &Parallelism, shape: MicrobatchShape) -> Result<UnitWork, RecordError> {
    let case = RecordCase {
        model,
        tp: TensorParallel { size: parallelism.tp, position: 0 },
        shape,
        purpose: Purpose::Train,
        write: Write::Accumulate,
    };
    let work = |kind: UnitKind| -> Result<u64, RecordError> {
        let mut sum = 0;
        for phase in phases(parallelism.recompute) {
            let cost = record_unit(&case, kind, *phase)?.record.total();
            sum += cost.multiply_adds + MULTIPLY_ADDS_PER_BYTE * cost.moved_bytes;
        }
        Ok(sum)
    };
    Ok(UnitWork { embedding: work(UnitKind::Embedding)?, layer: work(UnitKind::Layer)?, head: work(UnitKind::Head)? })
}
