//! Opening a rank with the state that a run begins with, and saving its state.

use checkpoint::{CheckpointFolder, RunState, StatePart};
use device::{DeviceError, Stream};
use mesh::Coord;
use model::BindError;
use program::save_instrs;

use crate::engine::RankEngine;
use crate::setup::start::{CompletedWeights, PartSource, Start, has_averages};
use crate::setup::{Setup, WorkloadIndex};
use crate::storage::fetch::{self, FetchError};
use crate::storage::finite::FiniteSource;
use crate::storage::routers;
use crate::worker::Worker;
use crate::worker::batch::TokenSource;
use crate::worker::call_clock::CallClock;
use crate::worker::loss_scale::LossScale;
use crate::worker::ports::RankPorts;
use crate::worker::position::RankPosition;
use crate::worker::rank_state::RankState;
use crate::worker::run_position::RunPosition;
use crate::worker::save_stream::SaveStream;
use crate::worker::spikes::SpikeWatch;

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
        let rank = RankPosition::new(&setup.parallelism, coord);
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
        let [corrections, loads] = [routers::corrections, routers::loads].map(|of| of(&setup.model, &state.constants));
        match start {
            Start::Seed => {
                fetch::drawn_weights(device, model_coord, &state.units, setup.train.seed)?;
                state.clear_moments(device)?;
                state.begin_averages(device)?;
            }
            Start::Weights(weights) => {
                let source = CompletedWeights { given: &FiniteSource(weights), seed: setup.train.seed };
                fetch::weights(device, model_coord, &state.units, &source)?;
                routers::fetch(device, &corrections, &source)?;
                state.clear_moments(device)?;
                state.begin_averages(device)?;
            }
            Start::Checkpoint(checkpoint) => {
                let part = |part| PartSource { checkpoint, part };
                fetch::weights(device, model_coord, &state.units, &part(StatePart::Weights))?;
                routers::fetch(device, &[corrections, loads].concat(), &part(StatePart::Weights))?;
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

    /// Hands `state` and the tensors of this rank to the thread that saves them in `folder`, where there is one.
    ///
    /// # Errors
    /// An earlier checkpoint that storage has not finished.
    pub fn save(&mut self, state: RunState, folder: &CheckpointFolder) -> Result<(), DeviceError> {
        let Some(saving) = &mut self.ports.saving else { return Ok(()) };
        saving.begin(state, folder)?;
        for instr in save_instrs(&self.position.program.view) {
            self.execute(instr)?;
        }
        self.ports.saving.as_mut().map_or(Ok(()), SaveStream::finish)
    }
}

/// Why a rank could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
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
