//! The events of a run, and their receivers.

use std::time::Duration;

use checkpoint::CheckpointError;
use device::DeviceError;

use crate::execute::routers::{RouterFigures, RouterReport};
use crate::infer::evaluate::EvaluationReport;
use crate::run::samples::SampleReport;
use crate::run::step_verdict::AnomalyReport;
use crate::run::work_times::WorkTimes;
use crate::stop_request::StopRequest;
use crate::storage::saving::SaveReport;
use crate::worker::Worker;
use crate::worker::loss_scale::UpdateOutcome;

/// One optimizer step, the same on every rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepReport {
    /// Counted from 1.
    pub step: u32,
    /// Mean over the step's valid tokens, in nats; before the update.
    pub loss: f64,
    /// Mean z-loss of the same tokens, where the model has one.
    pub z_loss: Option<f64>,
    /// The routers of the step, where the model has some and counts what they choose.
    pub routers: Option<RouterFigures>,
    /// Global norm of the gradient of the losses, before clipping.
    pub gradient_norm: f64,
    /// How the loss was scaled in this step; `None` where it is not.
    pub loss_scaling: Option<LossScalingReport>,
    /// The anomaly of the step, if it has one.
    pub anomaly: Option<AnomalyReport>,
    /// Learning rate of the update.
    pub learning_rate: f32,
    /// Tokens of the step, over all ranks.
    pub tokens: usize,
    /// Those whose labels count, over all ranks.
    pub valid_tokens: u64,
    /// Wall time of the step on rank 0.
    pub wall: Duration,
}

/// The result of a step whose loss was scaled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossScalingReport {
    /// The factor of this step's loss.
    pub factor: f32,
    /// Whether its weights were updated or, after an overflow, left.
    pub update: UpdateOutcome,
    /// Steps so far, with this one, that changed no weight.
    pub skipped_steps: u32,
}

/// Hears of every step, on rank 0's thread, and of every instruction, on each rank's own.
pub trait Observer: Sync {
    /// Called after each step. [`StopRequest::Stop`] ends the run on all ranks after the next step.
    fn step(&self, report: &StepReport) -> StopRequest;

    /// Called before [`Observer::step`] where a model has routers and counts what they choose; by default nothing is
    /// done.
    fn routers(&self, _report: &RouterReport) {}

    /// Called after each step on every rank's own thread, where that computes; by default nothing is done.
    fn rank_step(&self, _times: WorkTimes) {}

    /// Asked in every step, before the ranks join their sums: [`StopRequest::Stop`] ends the run on all ranks after
    /// this step. Asked in every pass of an evaluation, too, which ends after this pass, and the run with it.
    fn stop_request(&self) -> StopRequest {
        StopRequest::None
    }

    /// Called after each pass of an evaluation with the share of it that is done; by default nothing is done.
    fn evaluating(&self, _share: f64, _elapsed: Duration) {}

    /// Called where the held-out loss after `step` steps could not be added to their checkpoint, which stays without
    /// it; by default nothing is done.
    fn loss_not_saved(&self, _step: u32, _error: &CheckpointError) {}

    /// Called after each evaluation; by default nothing is done.
    fn evaluation(&self, _report: &EvaluationReport) {}

    /// Called after each evaluation of the text that is called `name`; by default nothing is done.
    fn validation(&self, _name: &str, _report: &EvaluationReport) {}

    /// Called after each text that the run has generated; by default nothing is done.
    fn sampled(&self, _report: &SampleReport) {}

    /// Called when a checkpoint was committed or has failed, on a thread that saves; by default nothing is done.
    fn saved(&self, _report: SaveReport) {}

    /// Called on every rank after it has executed instruction `rank.at` of step `rank.step`: for looking at a rank's
    /// tensors between instructions. Nothing by default.
    ///
    /// # Errors
    /// The device's; they end the run like a failing instruction.
    fn instruction(&self, _worker: &Worker<'_>) -> Result<(), DeviceError> {
        Ok(())
    }
}
