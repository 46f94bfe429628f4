//! The run that is disturbed: eight ranks of every kind of parallelism at once.

use std::path::Path;
use std::sync::{Arc, Mutex};

use checkpoint::{Checkpoint, Committer, Retention, Storage, Store, committed};
use config::{Format, GradientSums, Parallelism, Products, Tied, TrainSpec, ZeroStage};
use prove::{Outcome, ProofError, RankSlots};
use sync::{into_inner, lock};
use testkit::layout::{Layout, engine};
use testkit::models::{plain_layout, proof_text};
use testkit::numbers::{Numbers, model, training};
use testkit::resumed::{LayoutPart, outcome_of_parts};
use train::{Observer, Ports, SaveReport, Saving, Setup, StepReport, StopRequest, run};

/// Steps of the run.
const STEPS: u32 = 8;
/// All of its checkpoints are kept.
const RETENTION: Retention = Retention { newest: usize::MAX, every: 0, best: 0 };

/// The run, and what it learns undisturbed.
#[derive(Debug)]
pub struct Reference {
    layout: Layout,
    undisturbed: Outcome,
}

impl Reference {
    /// GPT-2 style, dp 2 x tp 2 x pp 2 with ZeRO-1 and dropout, in single precision.
    pub fn layout() -> Layout {
        let train = training(Numbers::new(Format::Fp32, GradientSums::Single, Products::Chained));
        let parallelism = Parallelism { zero: ZeroStage::One, ..plain_layout(2, 2, 2, 1) };
        Layout { model: model(Tied::Yes), parallelism, train: TrainSpec { steps: STEPS, ..train } }
    }

    /// Runs it once, undisturbed.
    ///
    /// # Errors
    /// See [`ProofError`].
    pub fn new() -> Result<Reference, ProofError> {
        let layout = Reference::layout();
        let undisturbed = layout.outcome(&proof_text())?;
        Ok(Reference { layout, undisturbed })
    }

    /// Number of steps of the reference.
    pub fn steps(&self) -> u32 {
        STEPS
    }

    /// Resumes from the newest checkpoint in `folder`, or begins if it holds none. Returns whether the whole run is
    /// the same, and the reason if it is not.
    pub(super) fn completes(&self, folder: &Path) -> Result<(), String> {
        let done = committed(folder).map_err(|error| error.to_string())?.first().map_or(0, |newest| newest.steps);
        let rest = [LayoutPart { layout: self.layout.clone(), until: STEPS }];
        let outcome = outcome_of_parts(&rest, &proof_text(), folder).map_err(|error| error.to_string())?;
        self.same(&outcome, done)
    }

    /// Whether the first steps of the run have `losses`, to the bit.
    pub(super) fn begins_with(&self, losses: &[f64]) -> Result<(), String> {
        let undisturbed = &self.undisturbed.losses;
        let same = losses.iter().zip(undisturbed).take_while(|(loss, other)| loss.to_bits() == other.to_bits()).count();
        match losses.get(same) {
            Some(loss) => Err(format!(
                "before the kill, the loss of step {} must be that of the undisturbed run; got {loss}",
                same + 1
            )),
            None => Ok(()),
        }
    }

    /// Whether `outcome`, of the steps after the first `done`, is the same.
    pub(super) fn same(&self, outcome: &Outcome, done: u32) -> Result<(), String> {
        if bits(&outcome.losses) != bits(&self.undisturbed.losses[done as usize..]) {
            return Err(format!("losses after step {done} differ"));
        }
        let weights = |outcome: &Outcome| prove::weights_hash(&self.layout.model, &outcome.weights);
        if weights(outcome) != weights(&self.undisturbed) {
            return Err(format!("after step {done}: the last weights differ"));
        }
        Ok(())
    }
}

fn bits(losses: &[f64]) -> Vec<u64> {
    losses.iter().map(|loss| loss.to_bits()).collect()
}

/// Runs the reference with a checkpoint after each step on `storage`. `stop_request` is asked in each step, with the
/// steps that are done. Returns the results of the checkpoints, in the order of their ends.
pub(super) fn run_saved(
    storage: Arc<dyn Storage>,
    folder: &Path,
    stop_request: impl Fn(u32) -> StopRequest + Sync,
) -> Result<Saved, ProofError> {
    run_reported(storage, folder, Log { stop_request, report: |_: &StepReport| (), saved: Mutex::default() })
}

/// Runs as [`run_saved`] does, to the end; `report` is called with each step before its checkpoint begins.
pub(super) fn run_and_report(
    storage: Arc<dyn Storage>,
    folder: &Path,
    report: impl Fn(&StepReport) + Sync,
) -> Result<Saved, ProofError> {
    run_reported(storage, folder, Log { stop_request: |_| StopRequest::None, report, saved: Mutex::default() })
}

fn run_reported<W: Fn(u32) -> StopRequest + Sync, R: Fn(&StepReport) + Sync>(
    storage: Arc<dyn Storage>,
    folder: &Path,
    log: Log<W, R>,
) -> Result<Saved, ProofError> {
    let store = Store::open(folder, storage, RETENTION)?;
    let layout = Reference::layout();
    let setup: Setup = layout.setup()?;
    let _ranks = RankSlots::of_this_process().take(setup.mesh.world_size());
    let (weights, tokens) = (train::TensorMap::default(), proof_text());
    let committer = Committer::new(&store, 1);
    let saving = Some(Saving::with(&committer).every(1));
    let ports = Ports { saving, weights: Some(&weights), ..Ports::new(&tokens, &log) };
    run(&setup, &*engine(&setup, 1), ports)?;
    let mut saved = into_inner(log.saved);
    saved.outcome.weights = weights.into_tensors().into_iter().map(|(name, tensor)| (name, tensor.values)).collect();
    Ok(saved)
}

/// The results of a run with checkpoints.
#[derive(Debug, Default)]
pub(super) struct Saved {
    pub(super) outcome: Outcome,
    /// For each checkpoint its steps, and why there is none.
    pub(super) ends: Vec<(u32, Option<String>)>,
}

struct Log<W, R> {
    stop_request: W,
    report: R,
    saved: Mutex<Saved>,
}

impl<W: Fn(u32) -> StopRequest + Sync, R: Fn(&StepReport) + Sync> Observer for Log<W, R> {
    fn step(&self, report: &StepReport) -> StopRequest {
        (self.report)(report);
        lock(&self.saved).outcome.losses.push(report.loss);
        StopRequest::None
    }

    fn stop_request(&self) -> StopRequest {
        let done = lock(&self.saved).outcome.losses.len();
        (self.stop_request)(done as u32)
    }

    fn saved(&self, report: SaveReport) {
        let failure = report.finished.outcome.err().map(|error| error.to_string());
        lock(&self.saved).ends.push((report.steps, failure));
    }
}

/// Whether every byte of the newest checkpoint in `folder` is sound; the steps that it is after, 0 where there is none.
pub(super) fn newest_is_sound(folder: &Path) -> Result<u32, String> {
    let Some(newest) = committed(folder).map_err(|error| error.to_string())?.into_iter().next() else { return Ok(0) };
    let checkpoint = Checkpoint::open(&newest.path).map_err(|error| error.to_string())?;
    match checkpoint.verify().first() {
        Some(error) => Err(error.to_string()),
        None => Ok(newest.steps),
    }
}
