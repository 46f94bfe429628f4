//! Runs a layout and keeps what is compared.

use std::sync::{Mutex, MutexGuard};

use checkpoint::CheckpointError;
use device::DeviceError;
use sync::{into_inner, lock};
use train::{
    Engine, Observer, Ports, SaveReport, Saving, Setup, SetupError, Start, StepReport, StopRequest, TensorMap,
    TensorSink, TensorSource, TokenSource, TrainError, Worker, run,
};

use crate::distance::{Outcome, Tensors};
use crate::rank_slots::RankSlots;
use crate::watch::{NoWatch, Watch};

/// Why a layout gave no outcome.
#[derive(Debug, thiserror::Error)]
pub enum ProofError {
    /// It could not be prepared.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// It failed.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// It was not saved, or cannot be read again.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A trial could not be set up.
    #[error("a trial could not be set up: {0}")]
    Trial(std::io::Error),
    /// Another process failed, or sent something else than expected.
    #[error("{0}")]
    Processes(String),
    /// A tensor was delivered in part or twice.
    #[error("{name} has {len} elements, but {received} were delivered")]
    Delivery {
        /// The tensor.
        name: String,
        /// Its elements.
        len: usize,
        /// Elements delivered.
        received: usize,
    },
}

/// Runs `setup` on `engine` and keeps losses, norms, first gradients and last weights. Waits for places of
/// [`RankSlots::of_this_process`] first.
///
/// # Errors
/// See [`ProofError`].
pub fn outcome_of(setup: &Setup, engine: &dyn Engine, tokens: &dyn TokenSource) -> Result<Outcome, ProofError> {
    outcome_from(setup, engine, tokens, None)
}

/// Returns the same as [`outcome_of`], from the weights of `initial`, or else from the weights of the seed.
///
/// # Errors
/// See [`ProofError`].
pub fn outcome_from(
    setup: &Setup,
    engine: &dyn Engine,
    tokens: &dyn TokenSource,
    initial: Option<&dyn TensorSource>,
) -> Result<Outcome, ProofError> {
    outcome_watched(setup, engine, tokens, initial, &NoWatch)
}

/// Returns the same as [`outcome_from`]; `watch` sees every rank after each of its instructions.
///
/// # Errors
/// See [`ProofError`].
pub fn outcome_watched(
    setup: &Setup,
    engine: &dyn Engine,
    tokens: &dyn TokenSource,
    initial: Option<&dyn TensorSource>,
    watch: &dyn Watch,
) -> Result<Outcome, ProofError> {
    let first = First { steps: setup.train.steps, watch };
    outcome_of_run(setup, engine, tokens, RunPart { first, ..RunPart::from(Start::with(initial)) })
}

/// Runs no more than the first `steps` steps, of which `watch` alone keeps something.
///
/// # Errors
/// See [`ProofError`].
pub fn run_first(
    steps: u32,
    setup: &Setup,
    engine: &dyn Engine,
    tokens: &dyn TokenSource,
    watch: &dyn Watch,
) -> Result<(), ProofError> {
    let _ranks = RankSlots::of_this_process().take(setup.mesh.world_size());
    let log = Log::of(First { steps, watch });
    run(setup, engine, Ports::new(tokens, &log))?;
    Ok(())
}

/// How much of a run is done, and who sees it.
#[derive(Clone, Copy)]
pub struct First<'a> {
    /// Steps at most.
    pub steps: u32,
    /// Sees every rank after each of its instructions.
    pub watch: &'a dyn Watch,
}

/// A part of a run: where it begins, how far it goes, and whether it is saved.
#[derive(Clone, Copy)]
pub struct RunPart<'a> {
    /// Its first step.
    pub start: Start<'a>,
    /// Its checkpoints.
    pub saving: Option<Saving<'a>>,
    /// Its length, and its watch.
    pub first: First<'a>,
}

impl<'a> RunPart<'a> {
    /// All that follows `start`, not saved.
    pub fn from(start: Start<'a>) -> RunPart<'a> {
        RunPart { start, saving: None, first: First { steps: u32::MAX, watch: &NoWatch } }
    }
}

/// Where ranks deliver the tensors of an outcome.
#[derive(Clone, Copy)]
pub struct OutcomeSinks<'a> {
    /// Takes the first gradients.
    pub gradients: &'a dyn TensorSink,
    /// Takes the last weights.
    pub weights: &'a dyn TensorSink,
}

/// Runs a part of a run and keeps the outcome of its steps, as [`outcome_of`].
///
/// # Errors
/// See [`ProofError`].
pub fn outcome_of_run(
    setup: &Setup,
    engine: &dyn Engine,
    tokens: &dyn TokenSource,
    part_of_run: RunPart<'_>,
) -> Result<Outcome, ProofError> {
    let (gradients, weights) = (TensorMap::default(), TensorMap::default());
    let sinks = OutcomeSinks { gradients: &gradients, weights: &weights };
    let reports = run_part(setup, engine, tokens, part_of_run, sinks)?;
    Outcome::new(&reports, gradients, weights)
}

/// Runs the ranks of this process, which deliver the tensors of the outcome to `sinks`. Returns the reports of all
/// steps where rank 0 is in this process, and none elsewhere.
///
/// # Errors
/// See [`ProofError`].
pub fn run_part(
    setup: &Setup,
    engine: &dyn Engine,
    tokens: &dyn TokenSource,
    RunPart { start, saving, first }: RunPart<'_>,
    OutcomeSinks { gradients, weights }: OutcomeSinks<'_>,
) -> Result<Vec<StepReport>, ProofError> {
    let _ranks = RankSlots::of_this_process().take(setup.mesh.world_size());
    let log = Log::of(first);
    let (first_gradients, weights) = (Some(gradients), Some(weights));
    run(setup, engine, Ports { start, saving, first_gradients, weights, ..Ports::new(tokens, &log) })?;
    if let Some(error) = into_inner(log.not_saved) {
        return Err(error.into());
    }
    Ok(into_inner(log.reports))
}

impl Outcome {
    /// The outcome of a run with these reports, which delivered these tensors.
    ///
    /// # Errors
    /// [`ProofError::Delivery`].
    pub fn new(reports: &[StepReport], gradients: TensorMap, weights: TensorMap) -> Result<Outcome, ProofError> {
        Ok(Outcome {
            losses: reports.iter().map(|report| report.loss).collect(),
            norms: reports.iter().map(|report| report.gradient_norm).collect(),
            valid_tokens: reports.iter().map(|report| report.valid_tokens).collect(),
            scaling: reports.iter().map(|report| report.loss_scaling).collect(),
            gradients: whole(gradients)?,
            weights: whole(weights)?,
        })
    }
}

fn whole(map: TensorMap) -> Result<Tensors, ProofError> {
    map.into_tensors()
        .into_iter()
        .map(|(name, assembly)| match assembly.received == assembly.values.len() {
            true => Ok((name, assembly.values)),
            false => Err(ProofError::Delivery { name, len: assembly.values.len(), received: assembly.received }),
        })
        .collect()
}

/// Keeps every report, and ends the run after its first steps.
struct Log<'a> {
    reports: Mutex<Vec<StepReport>>,
    not_saved: Mutex<Option<CheckpointError>>,
    first: First<'a>,
}

impl<'a> Log<'a> {
    fn of(first: First<'a>) -> Log<'a> {
        Log { reports: Mutex::default(), not_saved: Mutex::default(), first }
    }

    fn reports(&self) -> MutexGuard<'_, Vec<StepReport>> {
        lock(&self.reports)
    }
}

impl Observer for Log<'_> {
    fn step(&self, report: &StepReport) -> StopRequest {
        self.reports().push(*report);
        StopRequest::None
    }

    fn stop_request(&self) -> StopRequest {
        if self.reports().len() as u32 + 1 < self.first.steps { StopRequest::None } else { StopRequest::Stop }
    }

    fn saved(&self, report: SaveReport) {
        let failure = report.finished.outcome.err().or(report.finished.not_retired);
        let mut not_saved = lock(&self.not_saved);
        *not_saved = not_saved.take().or(failure);
    }

    fn instruction(&self, worker: &Worker<'_>) -> Result<(), DeviceError> {
        self.first.watch.instruction(worker)
    }
}
