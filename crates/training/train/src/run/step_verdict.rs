//! From a step's sums to its update: the same answer on every rank, for the same sums.

use config::{OnNonFinite, OnSpike};

use crate::execute::reduce::StepOutcome;
use crate::ranks::failure::TrainError;
use crate::worker::Worker;
use crate::worker::loss_scale::UpdateOutcome;
use crate::worker::spikes::Anomaly;

/// Steps in a row that may change no weight: after these no later step is likely to.
pub const MOST_SKIPPED_IN_A_ROW: u32 = 10;

/// A step that is not as usual, and what was done about it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AnomalyReport {
    pub anomaly: Anomaly,
    /// Whether its weights were updated.
    pub update: UpdateOutcome,
    /// Steps so far, with this one, that changed no weight.
    pub skipped_steps: u32,
}

/// The answer to a step's sums, before any weight changes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepVerdict {
    pub anomaly: Option<Anomaly>,
    /// Whether the step ends without an update.
    pub leaves_weights: bool,
}

/// Looks at the sums of a step.
pub fn judge(worker: &mut Worker<'_>, outcome: &StepOutcome) -> StepVerdict {
    if outcome.not_finite {
        return StepVerdict { anomaly: Some(Anomaly::NonFinite), leaves_weights: true };
    }
    let on_spike = worker.position.setup.train.anomalies.on_spike;
    let found = match on_spike {
        OnSpike::Off => return StepVerdict::default(),
        OnSpike::Warn | OnSpike::Skip | OnSpike::RollBack => worker.state.spikes.judge(outcome.loss, outcome.norm),
    };
    let leaves_weights = match on_spike {
        OnSpike::Off | OnSpike::Warn => false,
        OnSpike::Skip | OnSpike::RollBack => found.is_some(),
    };
    let diverged = if leaves_weights { None } else { worker.state.spikes.take(outcome.loss, outcome.norm) };
    StepVerdict { anomaly: found.or(diverged).map(Anomaly::Spike), leaves_weights }
}

/// Takes note of a step that has ended, and says what it means for the run.
///
/// # Errors
/// A step after which the run stops, or returns to a checkpoint.
pub fn conclude(
    worker: &mut Worker<'_>,
    outcome: &StepOutcome,
    verdict: StepVerdict,
) -> Result<(UpdateOutcome, Option<AnomalyReport>), TrainError> {
    let (step, anomalies) = (worker.position.step + 1, worker.position.setup.train.anomalies);
    let scale = &mut worker.state.loss_scale;
    let by_scale = if outcome.not_finite { scale.after_overflow() } else { scale.after_finite() };
    let roll_back =
        |anomaly| Err(TrainError::RollBack { step, anomaly, loss: outcome.loss, gradient_norm: outcome.norm });
    let update = match (by_scale, verdict.anomaly) {
        (UpdateOutcome::Hopeless, _) => match anomalies.on_nonfinite {
            OnNonFinite::Stop => return Err(not_finite(worker, outcome)),
            OnNonFinite::Skip => worker.state.loss_scale.skip(),
            OnNonFinite::RollBack => return roll_back(Anomaly::NonFinite),
        },
        // The loss is scaled, and the next step has another factor.
        (UpdateOutcome::Skipped, _) => return Ok((UpdateOutcome::Skipped, None)),
        (UpdateOutcome::Updated, Some(anomaly @ Anomaly::Spike(_))) if verdict.leaves_weights => {
            match anomalies.on_spike {
                OnSpike::RollBack => return roll_back(anomaly),
                OnSpike::Off | OnSpike::Warn | OnSpike::Skip => worker.state.loss_scale.skip(),
            }
        }
        (UpdateOutcome::Updated, _) => UpdateOutcome::Updated,
    };
    worker.state.skipped_in_a_row =
        if update == UpdateOutcome::Updated { 0 } else { worker.state.skipped_in_a_row + 1 };
    if worker.state.skipped_in_a_row > MOST_SKIPPED_IN_A_ROW {
        return Err(TrainError::Skipping { step, steps: worker.state.skipped_in_a_row, loss: outcome.loss });
    }
    let skipped_steps = worker.state.loss_scale.skipped_steps();
    Ok((update, verdict.anomaly.map(|anomaly| AnomalyReport { anomaly, update, skipped_steps })))
}

fn not_finite(worker: &Worker<'_>, outcome: &StepOutcome) -> TrainError {
    let (step, loss, scale) = (worker.position.step + 1, outcome.loss, &worker.state.loss_scale);
    match scale.is_dynamic() {
        true => TrainError::Overflow { step, loss_scale: scale.factor(), skipped_steps: scale.skipped_steps(), loss },
        false => {
            TrainError::NotFinite { step, loss, gradient_norm: outcome.norm, sums: worker.position.setup.train.sums }
        }
    }
}
