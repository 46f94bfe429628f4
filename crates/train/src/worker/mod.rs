//! One rank: where it is, what it holds, and what it reaches the outside through.

pub mod batch;
pub mod bindings;
pub(crate) mod memory;
pub mod ports;
pub mod position;
pub mod rank_state;
pub mod run_position;
pub mod unit_state;

use std::time::Instant;

use checkpoint::{RunState, SpikeState, StatePart};
use config::{Unit, UnsupportedAxis};
use device::{DeviceError, Frame, Stream};
use mesh::Coord;
use model::{BindError, Context, DropoutRun, EmbeddingParams, HeadParams, LayerParams};
use program::{Purpose, save_instrs};

use crate::engine::RankEngine;
use crate::execute::loss_scale::LossScale;
use crate::run::spikes::SpikeWatch;
use crate::run::work_times::CallClock;
use crate::setup::start::{PartSource, Start, has_averages};
use crate::setup::{Setup, WorkloadIndex};
use crate::storage::fetch::{self, FetchError};
use crate::storage::finite::FiniteSource;
use crate::storage::saving::{SaveStream, SavedIn};
use crate::worker::batch::TokenSource;
use crate::worker::bindings::Side;
use crate::worker::ports::RankPorts;
use crate::worker::position::RankPosition;
use crate::worker::rank_state::{Issued, RankState};
use crate::worker::run_position::RunPosition;

/// A rank between instructions.
pub struct Worker<'a> {
    /// Where it is in the run, in the mesh and in its program.
    pub position: RunPosition<'a>,
    /// Its tensors, and how far a step has filled them.
    pub state: RankState,
    /// Its device, its groups, its tokens and its storage.
    pub ports: RankPorts<'a>,
}

impl<'a> Worker<'a> {
    /// Binds the tensors of the rank at `coord`, fills tables, and fills parameters and optimizer state as `start`
    /// says.
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
        let rank = RankPosition::new(&setup.parallelism, &setup.mesh, coord)?;
        let position = RunPosition::new(setup, rank, WorkloadIndex::MAIN);
        let RankEngine { device, memory, communicators } = engine;
        let calls = CallClock::default();
        let communicators = calls.timed(communicators);
        let ports = RankPorts { device, communicators, calls, source, memory: Some(memory), saving: None };
        let mut worker = Worker { position, state: RankState::new(&position)?, ports };
        worker.take_up(WorkloadIndex::MAIN, source);
        worker.fill(start)?;
        Ok(worker)
    }

    /// Fills tables, parameters and optimizer state.
    fn fill(&mut self, start: Start<'_>) -> Result<(), OpenError> {
        let Worker { position, state, ports } = self;
        let (setup, device) = (position.setup, &*ports.device);
        let model_coord = position.rank.model;
        state.constants.initialise(device, Stream::Compute, &setup.model)?;
        match start {
            Start::Seed => {
                fetch::drawn_weights(device, model_coord, &state.units, setup.train.seed)?;
                state.clear_moments(device)?;
                state.begin_averages(device)?;
            }
            Start::Weights(weights) => {
                fetch::weights(device, model_coord, &state.units, &FiniteSource(weights))?;
                state.clear_moments(device)?;
                state.begin_averages(device)?;
            }
            Start::Checkpoint(checkpoint) => {
                let part = |part| PartSource { checkpoint, part };
                fetch::weights(device, model_coord, &state.units, &part(StatePart::Weights))?;
                let moments = [part(StatePart::FirstMoment), part(StatePart::SecondMoment)];
                fetch::moments(device, model_coord, &state.units, moments.each_ref().map(|part| part as _))?;
                match has_averages(checkpoint) {
                    true => fetch::averages(device, model_coord, &state.units, &part(StatePart::Average))?,
                    false => state.begin_averages(device)?,
                }
                state.loss_scale = LossScale::resumed(setup.train.precision, checkpoint.state());
                if let Some(spikes) = &checkpoint.state().spikes {
                    state.spikes = SpikeWatch::resumed(setup.train.anomalies.spike_score, spikes);
                }
            }
        }
        Ok(())
    }

    /// The losses and norms that a resumed run needs for the same decisions; none where no weight depends on them.
    pub fn spike_state(&self) -> Option<SpikeState> {
        self.position.setup.train.anomalies.depends_on_history().then(|| self.state.spikes.state())
    }

    /// Turns to another of the run's programs, and to other tokens. State stays as and where it is.
    pub fn take_up(&mut self, workload: WorkloadIndex, source: &'a dyn TokenSource) {
        self.position = self.position.taking_up(workload);
        self.ports.source = source;
        self.state.issued.clear();
        self.state.issued.resize(self.position.program.instrs.len(), None);
        let scratch = self.position.plan.scratch();
        self.state.scratch = Frame::new(scratch.offset_bytes, scratch.len_bytes);
    }

    /// When each instruction of the program ran, on the rank's own thread or on a stream's. Those that were not issued
    /// have no time.
    ///
    /// # Errors
    /// Failures of streams, which have ended everything when this returns.
    pub fn spans(&self) -> Result<Vec<Option<(Instant, Instant)>>, DeviceError> {
        self.ports.device.synchronize()?;
        let span = |issued: Issued| {
            let start = self.ports.device.reached(issued.start).map_or(issued.began, |before| before.max(issued.began));
            (start, self.ports.device.reached(issued.end).map_or(issued.returned, |end| end.max(start)))
        };
        Ok(self.state.issued.iter().map(|issued| issued.map(span)).collect())
    }

    /// Hands `state` and the tensors of this rank to the storage `place`, where there is one.
    ///
    /// # Errors
    /// An earlier checkpoint that storage has not finished.
    pub fn save(&mut self, state: RunState, place: SavedIn) -> Result<(), DeviceError> {
        let Some(saving) = &mut self.ports.saving else { return Ok(()) };
        saving.begin(state, place)?;
        for instr in save_instrs(&self.position.program.view) {
            self.execute(instr)?;
        }
        self.ports.saving.as_mut().map_or(Ok(()), SaveStream::finish)
    }

    /// Makes ready for step `step`: sums are zero, and every accumulator's first contribution will be assigned.
    ///
    /// # Errors
    /// The device's.
    pub fn begin_step(&mut self, step: u32) -> Result<(), DeviceError> {
        self.position.step = step;
        self.ports.calls.restart();
        self.state.begin_step(&*self.ports.device)
    }

    /// The context of a unit's functions, for the microbatch whose first sequence is `first_sequence`.
    ///
    /// # Errors
    /// An engine without a tensor-parallel or a context-parallel group.
    pub fn context(&self, first_sequence: u64) -> Result<Context<'_>, DeviceError> {
        let first_token = first_sequence * self.position.shape.sequence_length as u64;
        Ok(Context {
            device: &*self.ports.device,
            stream: Stream::Compute,
            tp: self.ports.communicators.over(self.position.setup.parallelism.tensor_axes())?,
            cp: self.ports.communicators.over(self.position.setup.parallelism.context_axes())?,
            model: &self.position.setup.model,
            shape: self.position.shape,
            sequence_parallel: self.position.sequence_parallel(),
            dropout: match self.position.program.view.purpose {
                Purpose::Train => {
                    Some(DropoutRun { seed: self.position.setup.train.seed, step: self.position.step, first_token })
                }
                Purpose::Evaluate | Purpose::Generate => None,
            },
            stored: self.position.setup.stored(),
            products: self.position.setup.train.precision.products(),
            accumulation: self.position.accumulation(self.state.loss_scale.factor()),
            constants: self.state.constants,
            scratch: &self.state.scratch,
        })
    }

    /// The tables that the embedding reads, or adds gradients to, in the instruction that runs.
    pub fn embedding(&self, side: Side) -> &EmbeddingParams {
        self.state.bindings.embedding(side, self.position.offsets(Unit::Embedding, side))
    }

    /// As [`Worker::embedding`], of a layer.
    pub fn layer(&self, number: u32, side: Side) -> &LayerParams {
        self.state.bindings.layer(number, side, self.position.offsets(Unit::Layer(number), side))
    }

    /// As [`Worker::embedding`], of the head.
    pub fn head(&self, side: Side) -> &HeadParams {
        self.state.bindings.head(side, self.position.offsets(Unit::Head, side))
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
