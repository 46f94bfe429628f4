//! One run of a comparison, on threads of this process.

use std::time::Duration;

use comm::Timeouts;
use config::{ModelSpec, Parallelism, TrainSpec};
use prove::{Outcome, ProofError, outcome_of};
use train::{
    Engine, EngineOptions, RunDevice, Setup, SetupError, ThreadEngine, TokenSource, open_engine, queued_streams,
};

/// One run to compare: what is learned, how it is spread.
#[derive(Clone, Debug)]
pub struct Layout {
    pub model: ModelSpec,
    /// The layout.
    pub parallelism: Parallelism,
    /// The optimisation.
    pub train: TrainSpec,
}

impl Layout {
    /// Runs on threads of this process.
    ///
    /// # Errors
    /// See [`ProofError`].
    pub fn outcome(&self, tokens: &dyn TokenSource) -> Result<Outcome, ProofError> {
        let setup = self.setup()?;
        outcome_of(&setup, &*engine(&setup, 1), tokens)
    }

    /// The prepared run.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub fn setup(&self) -> Result<Setup, SetupError> {
        Setup::new(self.model.clone(), self.parallelism.clone(), self.train.clone())
    }
}

/// Fresh ranks for `setup` with `threads_per_rank` threads each, deadlines scaled by how many ranks share a core.
pub fn engine(setup: &Setup, threads_per_rank: usize) -> Box<dyn Engine> {
    let (timeouts, queued) = (timeouts(setup), queued_streams(&setup.parallelism));
    let options = EngineOptions { timeouts, queued, threads_per_rank, library: None };
    open_engine(setup.groups(), options, &RunDevice::Cpu)
}

/// Returns the same as [`engine`], with one thread each, for tests that wrap the transports.
pub fn thread_engine(setup: &Setup) -> ThreadEngine {
    ThreadEngine::new(setup.groups(), timeouts(setup)).with_queues(queued_streams(&setup.parallelism))
}

fn timeouts(setup: &Setup) -> Timeouts {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Timeouts::new(Duration::from_secs(60)).scaled(setup.mesh.world_size(), cores)
}
