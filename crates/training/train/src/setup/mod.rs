//! Everything about a run that is decided before a rank starts: mesh, programs, memory plans, layouts.

pub mod source;
pub mod start;
pub mod step_order;

use std::collections::BTreeMap;

use config::{
    Degrees, Microbatches, ModelSpec, Parallelism, SampleSpec, SequenceParallel, TrainSpec, Unit, UnitLayout,
};
use device::{Dtype, Write};
use mesh::{Mesh, MeshError};
use model::{CacheSize, KeyValueCache, MicrobatchShape, TensorParallel};
use program::{
    CompileError, MemoryPlan, PeerGroups, Program, ProgramSet, ProgramSetError, Purpose, RankPlan, Schedule,
    ScheduleError, StageError, State, StepGraph, UnitTimes, Verified, Violation, Waits,
};
use rayon::prelude::*;
use record::{RecordCase, RecordError};
use thiserror::Error;

use crate::setup::step_order::StepOrder;

/// A run that is ready to start: verified programs and planned memory.
#[derive(Clone, Debug)]
pub struct Setup {
    pub model: ModelSpec,
    /// How it is spread.
    pub parallelism: Parallelism,
    /// How it is optimised.
    pub train: TrainSpec,
    /// The ranks.
    pub mesh: Mesh,
    /// Flat buffers of all units; empty for a unit without parameters.
    pub layouts: BTreeMap<Unit, UnitLayout>,
    /// State that ranks keep between programs.
    pub state: State,
    /// Room for keys and values, where the run generates.
    pub cache_size: CacheSize,
    /// The order of compute cells of a training step of a full batch.
    pub schedule: Schedule,
    /// Recorded costs of passes: multiply-adds, and moved bytes as the multiply-adds that take as long. Transfers
    /// are not priced.
    pub times: UnitTimes,
    /// The workloads of its programs; the first is the run's own.
    pub workloads: Vec<Workload>,
    /// Per workload one program and one memory plan per pipeline coordinate; all of them share the arena and the places
    /// of state.
    pub programs: ProgramSet,
}

/// The purpose of a program, and on what sizes it works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Training, evaluation or generation.
    pub purpose: Purpose,
    /// Microbatches of one pass and replica.
    pub num_microbatches: usize,
    /// Sizes of a microbatch.
    pub shape: MicrobatchShape,
}

/// Which workload of a [`Setup`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkloadIndex(usize);

impl WorkloadIndex {
    /// The run's own.
    pub const MAIN: WorkloadIndex = WorkloadIndex(0);
}

/// Why a run cannot be prepared.
#[derive(Debug, Error)]
pub enum SetupError {
    /// The degrees do not make a mesh.
    #[error(transparent)]
    Mesh(#[from] MeshError),
    /// The replicas do not make sharding groups.
    #[error("sharding groups of {shard_group} replicas do not divide dp {dp}; change one of the two")]
    ShardGroup {
        /// Replicas of a group.
        shard_group: usize,
        /// Replicas.
        dp: usize,
    },
    /// The ranks that divide experts are not a part of a sharding group.
    #[error("experts are divided over {ep} ranks, which must divide sharding groups of {shard_group} replicas")]
    ExpertRanks {
        /// Ranks that divide experts.
        ep: usize,
        /// Replicas of a group.
        shard_group: usize,
    },
    /// Runs of replicas that are added first are neither parts of sharding groups nor whole ones, or have a part of the
    /// experts.
    #[error(
        "runs of {sum_tree} replicas, which are added first, must be parts of sharding groups of {shard_group} or several whole ones, \
         and a multiple of the {ep} that divide experts"
    )]
    SumTree {
        /// Replicas of a run.
        sum_tree: usize,
        /// Replicas of a group.
        shard_group: usize,
        /// Ranks that divide experts.
        ep: usize,
    },
    /// The layers do not make stages.
    #[error(transparent)]
    Stages(#[from] StageError),
    /// There is no such schedule.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// The schedule does not fit the pipeline.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// The microbatches do not make the batch.
    #[error(
        "a global batch of {global_batch} sequences must be a multiple of dp {dp} x microbatch size {microbatch_size}; change one of the three"
    )]
    Batch {
        /// Sequences per step.
        global_batch: usize,
        /// Replicas.
        dp: usize,
        /// Sequences per microbatch.
        microbatch_size: usize,
    },
    /// The programs do not share an arena; a fault of their sizes.
    #[error(transparent)]
    Set(#[from] ProgramSetError),
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
    /// Compiles, verifies and plans a run that trains. Legal degrees are the caller's matter (`config::check`); what is
    /// not legal is refused here too, less kindly.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub fn new(model: ModelSpec, parallelism: Parallelism, train: TrainSpec) -> Result<Setup, SetupError> {
        let workloads = Workload::training(&parallelism, &train)?;
        Setup::of(model, parallelism, train, State::Training, workloads)
    }

    /// Returns the same as [`Setup::new`], for a run that also measures the loss on `sequences` held-out sequences.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub fn with_evaluation(
        model: ModelSpec,
        parallelism: Parallelism,
        train: TrainSpec,
        sequences: u64,
    ) -> Result<Setup, SetupError> {
        let mut workloads = Workload::training(&parallelism, &train)?;
        workloads.push(Workload::evaluate(&parallelism, &train, sequences));
        Setup::of(model, parallelism, train, State::Training, workloads)
    }

    /// Returns the same as [`Setup::with_evaluation`], for a run that also continues texts between steps, one at a
    /// time.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub fn with_samples(
        model: ModelSpec,
        parallelism: Parallelism,
        train: TrainSpec,
        sequences: u64,
    ) -> Result<Setup, SetupError> {
        let mut workloads = Workload::training(&parallelism, &train)?;
        workloads.push(Workload::evaluate(&parallelism, &train, sequences));
        workloads.push(Workload::generate(GENERATION_ROWS));
        let cache_size = cache_of_text(&model, &train, GENERATION_ROWS);
        let cache_bytes = KeyValueCache::size_bytes(&model, parallelism.degrees.tp, cache_size);
        let state = State::TrainingWithSamples { cache_bytes };
        Ok(Setup { cache_size, ..Setup::of(model, parallelism, train, state, workloads)? })
    }

    /// The setup of a run that trains, measures the loss on held-out text, and perhaps generates text. How much of that
    /// there is does not matter: an evaluation takes as many passes as it needs.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub fn of_run(
        model: ModelSpec,
        parallelism: Parallelism,
        train: TrainSpec,
        samples: &SampleSpec,
    ) -> Result<Setup, SetupError> {
        let sequences = u64::from(u32::MAX);
        match samples.every {
            0 => Setup::with_evaluation(model, parallelism, train, sequences),
            1.. => Setup::with_samples(model, parallelism, train, sequences),
        }
    }

    /// A run that only measures the loss on `sequences` sequences; of `train` it reads the sequence length.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub fn evaluation(
        model: ModelSpec,
        parallelism: Parallelism,
        train: TrainSpec,
        sequences: u64,
    ) -> Result<Setup, SetupError> {
        let workload = Workload::evaluate(&parallelism, &train, sequences);
        Setup::of(model, parallelism, train, State::Inference, vec![workload])
    }

    /// A run that computes logits and loss of `train.global_batch` sequences.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub fn forward(model: ModelSpec, parallelism: Parallelism, train: TrainSpec) -> Result<Setup, SetupError> {
        let shape = Workload::train(&parallelism, &train, train.global_batch)?.shape;
        // Ranks that share sequences have whole ones, and gather keys and values in place of remembering them.
        let capacity = if shape.slices.ranks > 1 { 0 } else { shape.sequence_length };
        let stored = train.precision.stored().into();
        let cache_size = CacheSize { sequences: shape.sequences, capacity, stored };
        let evaluate = Workload::evaluate(&parallelism, &train, train.global_batch as u64);
        let workloads = vec![Workload { purpose: Purpose::Generate, num_microbatches: 1, shape }, evaluate];
        Setup::generating(model, parallelism, train, cache_size, workloads)
    }

    /// A run that continues one text, computing `rows` tokens at a time, with a cache for as many tokens as the model's
    /// context.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub fn generation(
        model: ModelSpec,
        parallelism: Parallelism,
        train: TrainSpec,
        rows: usize,
    ) -> Result<Setup, SetupError> {
        let cache_size = cache_of_text(&model, &train, rows);
        Setup::generating(model, parallelism, train, cache_size, vec![Workload::generate(rows)])
    }

    fn generating(
        model: ModelSpec,
        parallelism: Parallelism,
        train: TrainSpec,
        cache_size: CacheSize,
        workloads: Vec<Workload>,
    ) -> Result<Setup, SetupError> {
        let state =
            State::Generation { cache_bytes: KeyValueCache::size_bytes(&model, parallelism.degrees.tp, cache_size) };
        Ok(Setup { cache_size, ..Setup::of(model, parallelism, train, state, workloads)? })
    }

    /// Programs for `workloads`, of which the first is the run's own, with the state that they need.
    ///
    /// # Errors
    /// See [`SetupError`].
    fn of(
        model: ModelSpec,
        parallelism: Parallelism,
        train: TrainSpec,
        state: State,
        workloads: Vec<Workload>,
    ) -> Result<Setup, SetupError> {
        let (dp, shard_group) = (parallelism.degrees.dp, parallelism.shard_group());
        if !dp.is_multiple_of(shard_group) {
            return Err(SetupError::ShardGroup { shard_group, dp });
        }
        let ep = parallelism.ep;
        if ep == 0 || !shard_group.is_multiple_of(ep) {
            return Err(SetupError::ExpertRanks { ep, shard_group });
        }
        let sum_tree = parallelism.sum_tree;
        let cuts_group = shard_group < dp && sum_tree > shard_group && !sum_tree.is_multiple_of(shard_group);
        if sum_tree == 0 || cuts_group || sum_tree > 1 && !sum_tree.is_multiple_of(ep) {
            return Err(SetupError::SumTree { sum_tree, shard_group, ep });
        }
        let order = StepOrder::new(&model, &parallelism, &train)?;
        // A batch that grows has hundreds of workloads, each of which is decided by itself.
        let verified: Vec<_> =
            workloads.par_iter().with_max_len(1).map(|workload| order.verified(state, workload)).collect();
        let programs = ProgramSet::new(verified.into_iter().collect::<Result<_, _>>()?)?;
        let StepOrder { schedule, times, .. } = order;
        let mesh = parallelism.mesh()?;
        let layouts = layouts(&model, &parallelism);
        let cache_size = CacheSize { sequences: 0, capacity: 0, stored: train.precision.stored().into() };
        Ok(Setup { model, parallelism, train, mesh, layouts, state, cache_size, schedule, times, workloads, programs })
    }

    /// The groups of its ranks.
    pub fn groups(&self) -> PeerGroups {
        PeerGroups::of_units(self.mesh, &self.parallelism, self.layouts.values())
    }

    /// All workloads.
    pub fn workload_indices(&self) -> impl Iterator<Item = WorkloadIndex> + use<> {
        (0..self.workloads.len()).map(WorkloadIndex)
    }

    /// The stored type of parameters and activations.
    pub fn stored(&self) -> Dtype {
        self.train.precision.stored().into()
    }

    /// The first workload of this purpose.
    pub fn workload(&self, purpose: Purpose) -> Option<WorkloadIndex> {
        self.workloads.iter().position(|workload| workload.purpose == purpose).map(WorkloadIndex)
    }

    /// The workload of a training step: that of its batch.
    pub fn training_workload(&self, step: u32) -> WorkloadIndex {
        let sequences = self.train.batches().at(step).sequences;
        let is_its = |workload: &Workload| {
            workload.purpose == Purpose::Train && workload.sequences(&self.parallelism) == sequences
        };
        self.workloads.iter().position(is_its).map_or(WorkloadIndex::MAIN, WorkloadIndex)
    }

    /// The linked programs of a workload.
    pub fn graph_of(&self, workload: WorkloadIndex) -> &StepGraph {
        self.programs.programs()[workload.0].graph()
    }

    /// The arenas of a workload, by pipeline rank.
    pub fn memory_of(&self, workload: WorkloadIndex) -> &MemoryPlan {
        self.programs.programs()[workload.0].plan()
    }

    /// The program of a workload on pipeline rank `stage`.
    pub fn program_of(&self, workload: WorkloadIndex, stage: usize) -> &Program {
        &self.programs.programs()[workload.0].programs()[stage]
    }

    /// The memory plan of a workload on pipeline rank `stage`.
    pub fn plan_of(&self, workload: WorkloadIndex, stage: usize) -> &RankPlan {
        &self.programs.programs()[workload.0].plan().ranks[stage]
    }

    /// The waits of a workload on pipeline rank `stage`.
    pub fn waits_of(&self, workload: WorkloadIndex, stage: usize) -> &Waits {
        &self.programs.programs()[workload.0].waits()[stage]
    }

    /// The waits of the run's own program on pipeline rank `stage`.
    pub fn waits(&self, stage: usize) -> &Waits {
        self.waits_of(WorkloadIndex::MAIN, stage)
    }

    /// The workload of an index.
    pub fn workload_of(&self, workload: WorkloadIndex) -> &Workload {
        &self.workloads[workload.0]
    }

    /// The run's own programs and plans.
    pub fn verified(&self) -> &Verified {
        &self.programs.programs()[WorkloadIndex::MAIN.0]
    }

    /// The run's own program on pipeline rank `stage`.
    pub fn program(&self, stage: usize) -> &Program {
        self.program_of(WorkloadIndex::MAIN, stage)
    }

    /// The run's own memory plan on pipeline rank `stage`.
    pub fn plan(&self, stage: usize) -> &RankPlan {
        self.plan_of(WorkloadIndex::MAIN, stage)
    }

    /// Microbatches per step and replica, of a full batch.
    pub fn num_microbatches(&self) -> usize {
        self.parallelism.num_microbatches(self.train.global_batch)
    }
}

impl Workload {
    /// The steps of a run: one of a full batch, then one of each smaller batch on the way there.
    fn training(parallelism: &Parallelism, train: &TrainSpec) -> Result<Vec<Workload>, SetupError> {
        train
            .batches()
            .sizes()
            .into_iter()
            .rev()
            .map(|sequences| Workload::train(parallelism, train, sequences))
            .collect()
    }

    /// A training step of `global_batch` sequences.
    pub(crate) fn train(
        parallelism: &Parallelism,
        train: &TrainSpec,
        global_batch: usize,
    ) -> Result<Workload, SetupError> {
        let Parallelism { degrees: Degrees { dp, .. }, microbatch_size, .. } = *parallelism;
        let refused = SetupError::Batch { global_batch, dp, microbatch_size };
        // Smaller batches may be as many microbatches as the full one.
        let Some(Microbatches { number, size }) = train.batches().microbatches(global_batch, parallelism) else {
            return Err(refused);
        };
        if global_batch == 0 || dp * number * size != global_batch {
            return Err(refused);
        }
        let shape = shape(parallelism, train, size);
        Ok(Workload { purpose: Purpose::Train, num_microbatches: number, shape })
    }

    /// A pass over `rows` tokens of one text, the same on all replicas.
    fn generate(rows: usize) -> Workload {
        Workload { purpose: Purpose::Generate, num_microbatches: 1, shape: MicrobatchShape::whole(1, rows) }
    }

    /// One pass of an evaluation over `sequences` sequences: all of them if they are few, otherwise enough to keep a
    /// pipeline busy, and no more than a training step takes time for: a signal is looked for in every pass.
    fn evaluate(parallelism: &Parallelism, train: &TrainSpec, sequences: u64) -> Workload {
        let Parallelism { degrees: Degrees { dp, pp, .. }, microbatch_size, .. } = *parallelism;
        let shape = shape(parallelism, train, microbatch_size);
        let all = (sequences as usize).div_ceil(dp * microbatch_size).max(1);
        let of_step = FORWARD_PASSES_OF_STEP * parallelism.num_microbatches(train.global_batch);
        let most = (MICROBATCHES_PER_STAGE * pp).min(of_step.max(pp));
        Workload { purpose: Purpose::Evaluate, num_microbatches: all.min(most), shape }
    }

    /// Whether this workload's tokens are sharded over tensor parallelism. A program that generates keeps them whole:
    /// it works on few tokens at a time, which the ranks need not divide, and keeps no activations that would take less
    /// room.
    pub fn sequence_parallel(&self, parallelism: &Parallelism) -> SequenceParallel {
        match self.purpose {
            Purpose::Train | Purpose::Evaluate => parallelism.sequence_parallel,
            Purpose::Generate => SequenceParallel::Off,
        }
    }

    /// The case that is recorded for the workload. All tensor-parallel ranks need equally many bytes, so the first
    /// stands for all.
    pub fn record_case<'a>(
        &self,
        model: &'a ModelSpec,
        parallelism: &Parallelism,
        train: &TrainSpec,
    ) -> RecordCase<'a> {
        RecordCase {
            model,
            stored: train.precision.stored().into(),
            products: train.precision.products(),
            sums: train.sums,
            tp: TensorParallel { size: parallelism.degrees.tp, position: 0 },
            ep: parallelism.ep,
            shape: self.shape,
            sequence_parallel: self.sequence_parallel(parallelism),
            // Of layers that differ in this, a recomputed one needs all that the others need.
            recompute: parallelism.recompute_to_do().of_layer(0),
            purpose: self.purpose,
            write: Write::Accumulate,
        }
    }

    /// Sequences of one pass, over all replicas.
    pub fn sequences(&self, parallelism: &Parallelism) -> usize {
        parallelism.degrees.dp * self.num_microbatches * self.shape.sequences
    }

    /// The constant that the backward pass divides by: tokens of one pass if every label were valid. The exact number
    /// of valid labels enters with the clip coefficient.
    pub fn nominal_tokens(&self, parallelism: &Parallelism) -> f64 {
        (self.sequences(parallelism) * self.shape.sequence_length) as f64
    }
}

/// Room for one text of the length of the context. The last of the `rows` of a pass may be past the last token.
fn cache_of_text(model: &ModelSpec, train: &TrainSpec, rows: usize) -> CacheSize {
    CacheSize { sequences: 1, capacity: model.context + rows, stored: train.precision.stored().into() }
}

/// Of a microbatch of `sequences` sequences of the run.
pub(crate) fn shape(parallelism: &Parallelism, train: &TrainSpec, sequences: usize) -> MicrobatchShape {
    MicrobatchShape { sequences, sequence_length: train.sequence_length, slices: parallelism.slices() }
}

/// Microbatches of an evaluation's pass per pipeline stage: a pipeline of `p` stages idles for `p - 1` of `8 p + p - 1`
/// cells.
const MICROBATCHES_PER_STAGE: usize = 8;

/// Forward passes of a microbatch that take the time of its training: the backward pass computes twice as much.
const FORWARD_PASSES_OF_STEP: usize = 3;

/// The flat buffers of all units.
pub fn layouts(model: &ModelSpec, parallelism: &Parallelism) -> BTreeMap<Unit, UnitLayout> {
    Unit::holding(model.num_layers).map(|unit| (unit, UnitLayout::of(model, unit, parallelism))).collect()
}

/// Tokens that a pass computes at once. Matrices are read from memory once per pass, so a few more rows cost one token
/// little and a prompt gains much.
pub const GENERATION_ROWS: usize = 8;
