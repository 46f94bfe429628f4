//! One rank: its tensors, bound once, and what it needs to execute instructions.

pub mod batch;
pub mod bindings;
pub(crate) mod memory;
pub mod position;
pub mod state;

use std::collections::BTreeMap;
use std::time::Instant;

use checkpoint::{RunState, StatePart};
use config::{ModelCoord, SequenceParallel, StateKind, Unit, UnsupportedAxis};
use device::{Device, DeviceError, Dtype, Frame, MemoryReader, Op, Stream, StreamEvent, Write};
use mesh::Coord;
use model::{
    Accumulation, BindError, Constants, Context, DropoutRun, EmbeddingParams, HeadParams, LayerParams, MicrobatchShape,
    TensorParallel,
};
use program::{Program, Purpose, RankPlan, State, UnitCalls, Value, Waits, save_instrs};

use crate::engine::{Communicators, RankEngine};
use crate::execute::loss_scale::LossScale;
use crate::execute::reduce;
use crate::setup::start::{PartSource, Start};
use crate::setup::{Setup, Workload, WorkloadIndex};
use crate::storage::fetch::{self, FetchError};
use crate::storage::saving::SaveStream;
use crate::worker::batch::{HostBatch, SequenceOrder, TokenSource};
use crate::worker::bindings::{Bindings, Side, offsets};
use crate::worker::memory::Activations;
use crate::worker::position::RankPosition;
use crate::worker::state::{Held, ShardPlace, UnitState, update_runs};

/// A rank between instructions.
pub struct Worker<'a> {
    /// The run.
    pub setup: &'a Setup,
    /// Which of the run's programs it works on.
    pub workload: WorkloadIndex,
    /// What this rank does in a step of it.
    pub program: &'a Program,
    /// The waits of its instructions on other streams.
    pub waits: &'a Waits,
    /// The instructions of the program that were issued last, by their indices.
    pub issued: Vec<Option<Issued>>,
    /// Where its values lie.
    pub plan: &'a RankPlan,
    /// Where tokens come from.
    pub source: &'a dyn TokenSource,
    /// Executes operations.
    pub device: Box<dyn Device>,
    /// Joins tensors.
    pub communicators: Communicators,
    /// Units with parameters on this rank.
    pub units: BTreeMap<Unit, UnitState>,
    /// Tensors of the computing units of this rank.
    pub bindings: Bindings,
    /// Tables and sums.
    pub constants: Constants,
    /// Temporary memory of the compute stream.
    pub scratch: Frame,
    /// Sizes of a microbatch.
    pub shape: MicrobatchShape,
    /// Which sequences are whose.
    pub order: SequenceOrder,
    /// Host copy of a microbatch.
    pub host_batch: HostBatch,
    /// Which parts and copies of the parameters of its stage this rank holds.
    pub model_coord: ModelCoord,
    /// Position in tensor parallelism.
    pub tensor: TensorParallel,
    /// Place in each sequence of the microbatch's first token, where earlier ones are in the cache.
    pub first_cached: usize,
    /// Reads this rank's memory for storage; the thread that does has taken it.
    pub memory: Option<Box<dyn MemoryReader>>,
    /// Takes what `Save` instructions hand over.
    pub saving: Option<SaveStream>,
    /// Step, counted from 0.
    pub step: u32,
    /// Index of the instruction that runs.
    pub at: usize,
    /// The factor of the loss, and the steps that it has cost.
    pub loss_scale: LossScale,
    /// Computing units that have contributed gradients in this step.
    pub contributed: Vec<Unit>,
    /// Gradients (of a unit's parameters, made by a computing unit) that were reduced to this rank's shard in this step.
    pub reduced: Vec<(Unit, Unit)>,
}

/// An instruction that was handed to its stream.
#[derive(Clone, Copy, Debug)]
pub struct Issued {
    /// The stream has ended what comes before.
    pub start: StreamEvent,
    /// The stream has ended the instruction.
    pub end: StreamEvent,
    /// The rank's own thread began to issue it.
    pub began: Instant,
    /// The call returned.
    pub returned: Instant,
}

impl<'a> Worker<'a> {
    /// When each instruction of the program ran, on the rank's own thread or on a stream's. Those that were not issued have no time.
    ///
    /// # Errors
    /// Failures of streams, which have ended everything when this returns.
    pub fn spans(&self) -> Result<Vec<Option<(Instant, Instant)>>, DeviceError> {
        self.device.synchronize()?;
        let span = |issued: Issued| {
            let start = self.device.reached(issued.start).map_or(issued.began, |before| before.max(issued.began));
            (start, self.device.reached(issued.end).map_or(issued.returned, |end| end.max(start)))
        };
        Ok(self.issued.iter().map(|issued| issued.map(span)).collect())
    }

    /// Binds the tensors of the rank at `coord`, fills tables, and fills parameters and optimizer state as `start` says.
    ///
    /// # Errors
    /// Parameters that no layer reads or that `start` does not have, or a failing device.
    pub fn open(
        setup: &'a Setup,
        coord: Coord,
        source: &'a dyn TokenSource,
        start: Start<'_>,
        engine: RankEngine,
    ) -> Result<Worker<'a>, OpenError> {
        let position = RankPosition::new(&setup.parallelism, &setup.mesh, coord)?;
        let RankPosition { stage, model: model_coord, tensor, replica, shards } = position;
        let (program, plan) = (setup.program(stage), setup.plan(stage));
        let units = unit_states(setup, program, plan, shards);
        let largest = setup.workloads.iter().map(|workload| workload.shape.tokens()).max().unwrap_or(0);
        let mut rank = Worker {
            setup,
            workload: WorkloadIndex::MAIN,
            program,
            waits: setup.waits(stage),
            issued: vec![],
            plan,
            source,
            device: engine.device,
            communicators: engine.communicators,
            bindings: Bindings::new(setup, stage)?,
            constants: memory::constants(plan, &setup.model),
            scratch: Frame::nowhere(),
            shape: MicrobatchShape { sequences: 0, sequence_length: 0 },
            order: SequenceOrder { replica, num_microbatches: 0, microbatch_size: 0 },
            host_batch: HostBatch::new(largest),
            model_coord,
            tensor,
            first_cached: 0,
            memory: Some(engine.memory),
            saving: None,
            step: 0,
            at: 0,
            loss_scale: LossScale::new(setup.train.precision),
            contributed: Vec::with_capacity(setup.model.num_layers + 2),
            reduced: Vec::with_capacity(setup.model.num_layers + 4),
            units,
        };
        rank.take_up(WorkloadIndex::MAIN, source);
        rank.constants.initialise(&*rank.device, Stream::Compute, &setup.model)?;
        match start {
            Start::Seed => {
                fetch::drawn_weights(&rank)?;
                rank.clear_moments()?;
            }
            Start::Weights(weights) => {
                fetch::weights(&rank, weights)?;
                rank.clear_moments()?;
            }
            Start::Checkpoint(checkpoint) => {
                let part = |part| PartSource { checkpoint, part };
                fetch::weights(&rank, &part(StatePart::Weights))?;
                fetch::moments(&rank, &part(StatePart::FirstMoment), &part(StatePart::SecondMoment))?;
                rank.loss_scale = LossScale::resumed(setup.train.precision, checkpoint.state());
            }
        }
        Ok(rank)
    }

    /// Turns to another of the run's programs, and to other tokens. State stays as and where it is.
    pub fn take_up(&mut self, workload: WorkloadIndex, source: &'a dyn TokenSource) {
        let (setup, stage) = (self.setup, self.program.view.pp);
        (self.program, self.plan) = (setup.program_of(workload, stage), setup.plan_of(workload, stage));
        self.waits = setup.waits_of(workload, stage);
        self.issued.clear();
        self.issued.resize(self.program.instrs.len(), None);
        let (section, Workload { num_microbatches, shape, .. }) = (self.plan.scratch(), *setup.workload_of(workload));
        self.scratch = Frame::new(section.offset_bytes, section.len_bytes);
        self.order = SequenceOrder { num_microbatches, microbatch_size: shape.sequences, ..self.order };
        (self.workload, self.shape, self.source, self.at) = (workload, shape, source, 0);
    }

    /// The optimizer starts from moments of zero, whatever memory holds.
    fn clear_moments(&self) -> Result<(), DeviceError> {
        let moments = self.units.values().filter_map(|state| state.moments);
        let mut filled = moments.flat_map(|(first, second)| [first, second]).filter(|tensor| !tensor.is_empty());
        filled.try_for_each(|out| self.device.submit(Stream::Compute, &Op::Fill { out, value: 0.0 }))
    }

    /// Hands `state` and the tensors of this rank to storage, where there is one.
    ///
    /// # Errors
    /// Storage that does not get on with an earlier one.
    pub fn save(&mut self, state: RunState) -> Result<(), DeviceError> {
        let Some(saving) = &mut self.saving else { return Ok(()) };
        saving.begin(state)?;
        for instr in save_instrs(&self.program.view) {
            self.execute(instr)?;
        }
        self.saving.as_mut().map_or(Ok(()), SaveStream::finish)
    }

    /// Makes ready for step `step`: sums are zero, and every accumulator's first contribution will be assigned.
    ///
    /// # Errors
    /// The device's.
    pub fn begin_step(&mut self, step: u32) -> Result<(), DeviceError> {
        self.step = step;
        self.contributed.clear();
        self.reduced.clear();
        let sums = [self.constants.loss_sums, self.constants.norm_sums];
        sums.into_iter().try_for_each(|sums| reduce::zero_sums(&*self.device, sums))
    }

    /// Places of what lives within a step.
    pub fn activations(&self) -> Activations<'_> {
        let residual_rows = self.shape.tokens() / self.sequence_parallel().runs(self.tensor.size);
        let (model, shape) = (&self.setup.model, self.shape);
        let stored = self.setup.stored();
        Activations { plan: self.plan, at: self.at, model, shape, stored, residual_rows }
    }

    /// Whether the tokens of the program that runs are shared out over tensor parallelism.
    fn sequence_parallel(&self) -> SequenceParallel {
        self.setup.workload_of(self.workload).sequence_parallel(&self.setup.parallelism)
    }

    /// The collectives over the parameters or gradients of a unit of this rank.
    pub fn calls<'b>(&'b self, state: &'b UnitState) -> UnitCalls<'b> {
        let Setup { parallelism, mesh, .. } = self.setup;
        UnitCalls { parallelism, mesh, layout: &state.layout, updated: state.updated.clone() }
    }

    /// What the functions of a unit see, for the microbatch whose first sequence is `first_sequence`.
    ///
    /// # Errors
    /// An engine without a tensor-parallel group.
    pub fn context(&self, first_sequence: u64) -> Result<Context<'_>, DeviceError> {
        let first_token = first_sequence * self.shape.sequence_length as u64;
        Ok(Context {
            device: &*self.device,
            stream: Stream::Compute,
            tp: self.communicators.over(self.setup.parallelism.tensor_axes())?,
            model: &self.setup.model,
            shape: self.shape,
            sequence_parallel: self.sequence_parallel(),
            dropout: match self.program.view.purpose {
                Purpose::Train => Some(DropoutRun { seed: self.setup.train.seed, step: self.step, first_token }),
                Purpose::Evaluate | Purpose::Generate => None,
            },
            stored: self.setup.stored(),
            accumulation: self.accumulation(),
            constants: self.constants,
            scratch: &self.scratch,
        })
    }

    /// What accumulators of gradients hold in this step.
    pub fn accumulation(&self) -> Accumulation {
        Accumulation::new(self.setup.train.sums, self.nominal_tokens() as usize, self.loss_scale.factor())
    }

    /// Tokens of the program that runs, if every label were valid.
    pub fn nominal_tokens(&self) -> f64 {
        self.setup.workload_of(self.workload).nominal_tokens(&self.setup.parallelism)
    }

    /// Assign for the first contribution of `unit` in a step, accumulate afterwards.
    pub fn gradient_write(&mut self, unit: Unit) -> Write {
        if self.contributed.contains(&unit) {
            return Write::Accumulate;
        }
        self.contributed.push(unit);
        Write::Assign
    }

    /// Assign for the first reduction of a gradient to this rank's shard in a step, accumulate afterwards. The next contribution
    /// of `by` is assigned again.
    pub fn reduction_write(&mut self, unit: Unit, by: Unit) -> Write {
        self.contributed.retain(|contributed| *contributed != by);
        if self.reduced.contains(&(unit, by)) {
            return Write::Accumulate;
        }
        self.reduced.push((unit, by));
        Write::Assign
    }

    /// The sum of the gradients of `unit`'s parameters that `by` made, all of it or this rank's shard, while the instruction runs.
    ///
    /// # Panics
    /// It is not there: a fault of the program, which the verifier excludes.
    pub fn gradient_sum(&self, unit: Unit, by: Unit) -> Held {
        self.summed(unit, by, self.setup.train.sums.into())
    }

    /// The gradient of `unit` in single precision, which [`reduce::norm`] leaves, where the run trains.
    pub fn gradient(&self, unit: Unit) -> Option<Held> {
        self.units[&unit].makers.first().map(|by| self.summed(unit, *by, Dtype::F32))
    }

    fn summed(&self, unit: Unit, by: Unit, dtype: Dtype) -> Held {
        let elements = self.units[&unit].summed.clone();
        let value = self.program.view.sum(unit, by);
        Held { tensor: memory::numbers_at(self.plan, value, self.at, elements.len(), dtype), elements }
    }

    /// What the embedding reads, or adds to, in the instruction that runs.
    pub fn embedding(&self, side: Side) -> &EmbeddingParams {
        self.bindings.embedding(side, offsets(self.program, self.plan, Unit::Embedding, side, self.at))
    }

    /// As [`Worker::embedding`], of a layer.
    pub fn layer(&self, number: u32, side: Side) -> &LayerParams {
        self.bindings.layer(number, side, offsets(self.program, self.plan, Unit::Layer(number), side, self.at))
    }

    /// As [`Worker::embedding`], of the head.
    pub fn head(&self, side: Side) -> &HeadParams {
        self.bindings.head(side, offsets(self.program, self.plan, Unit::Head, side, self.at))
    }
}

/// Why a rank could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The mesh has ranks along an axis that no run divides work along.
    #[error(transparent)]
    Axis(#[from] UnsupportedAxis),
    /// Declared and read parameters differ.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The given weights are not this model's.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

fn unit_states(setup: &Setup, program: &Program, plan: &RankPlan, shards: ShardPlace) -> BTreeMap<Unit, UnitState> {
    let place = &program.view;
    let states = place.parameter_units().map(|unit| {
        let layout = setup.layouts[&unit].clone();
        let held = |value: Value, state: StateKind, dtype: Dtype| {
            let elements = shards.kept(&layout, state);
            Held { tensor: memory::state_numbers(plan, value, elements.len(), dtype), elements }
        };
        let single = |value| held(value, StateKind::Optimizer, Dtype::F32);
        let makers = place.accumulators().filter(|&(of, _)| of == unit && is_trained(setup)).map(|(_, by)| by);
        let mut makers: Vec<Unit> = makers.collect();
        makers.sort_by_key(|by| *by != place.finisher(unit));
        let state = UnitState {
            unit,
            params: held(Value::Params(unit), StateKind::Parameters, setup.stored()),
            masters: place.master(unit).filter(|_| is_trained(setup)).map(single),
            makers,
            summed: shards.kept(&layout, StateKind::Gradients),
            moments: is_trained(setup)
                .then(|| (single(Value::FirstMoment(unit)).tensor, single(Value::SecondMoment(unit)).tensor)),
            owned: shards.owned(&layout),
            updated: shards.kept(&layout, StateKind::Optimizer),
            update_runs: update_runs(&layout, &setup.train),
            layout: layout.clone(),
        };
        (unit, state)
    });
    states.collect()
}

fn is_trained(setup: &Setup) -> bool {
    match setup.state {
        State::Training => true,
        State::Inference | State::Generation { .. } => false,
    }
}
