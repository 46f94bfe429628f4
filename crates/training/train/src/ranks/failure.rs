//! The report of a rank's failure: rank, step and instruction, and the program around it.

use std::error::Error;
use std::fmt;

use blame::{Cause, CauseKind, Moment, OwnFailure};
use comm::CommError;
use config::GradientSums;
use device::DeviceError;
use mesh::Rank;

use crate::storage::fetch::FetchError;
use crate::storage::open::OpenError;
use crate::worker::spikes::{Anomaly, Spike};

/// Why a run ended before its last step.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The run cannot start: the program, the plan or the data do not fit.
    #[error("{0}")]
    Prepare(String),
    /// A rank failed or panicked; every other rank stopped because of it.
    #[error("{0}")]
    Rank(RankFailure),
    /// Loss or gradient overflows however little it is scaled. Seen by all ranks before any weight changed.
    #[error(
        "step {step}: fp16 overflows at the least loss scale, {loss_scale}, after {skipped_steps} skipped steps (loss {loss}); no weight was changed. \
         A lower learning rate, a longer warm-up or train.precision = \"bf16\" may help"
    )]
    Overflow {
        /// Counted from 1.
        step: u32,
        /// The factor of the loss.
        loss_scale: f32,
        /// Steps before that changed no weight.
        skipped_steps: u32,
        /// As reported.
        loss: f64,
    },
    /// The run is to return to a checkpoint. Seen by all ranks before any weight changed.
    #[error("step {step}: {}; no weight was changed", anomaly_text(anomaly, *loss, *gradient_norm))]
    RollBack {
        /// Counted from 1.
        step: u32,
        /// The anomaly of the step.
        anomaly: Anomaly,
        /// As reported.
        loss: f64,
        /// As reported.
        gradient_norm: f64,
    },
    /// No step updates weights any more. Seen by all ranks.
    #[error(
        "step {step}: loss {loss}; {steps} steps in a row have changed no weight. A lower learning rate, a longer warm-up or \
         train.on_nonfinite = \"rollback\" may help"
    )]
    Skipping {
        /// Counted from 1.
        step: u32,
        /// How many.
        steps: u32,
        /// As reported.
        loss: f64,
    },
    /// Loss or gradient is not finite. Seen by all ranks before any weight changed.
    #[error(
        "step {step}: loss {loss}, gradient norm {gradient_norm}; no weight was changed. {}", remedy(*sums)
    )]
    NotFinite {
        /// Counted from 1.
        step: u32,
        /// As reported.
        loss: f64,
        /// As reported.
        gradient_norm: f64,
        /// The data type in which gradients were summed.
        sums: GradientSums,
    },
}

impl TrainError {
    /// The failure as a part of the report of the run.
    pub fn own_failure(&self) -> OwnFailure {
        let together = |step, instruction: &str, kind| OwnFailure {
            rank: None,
            about: None,
            step,
            moment: Moment::InStep,
            instruction: instruction.into(),
            cause: Cause::new(kind, self.to_string()),
        };
        match self {
            TrainError::Prepare(_) => together(0, "", CauseKind::Other),
            TrainError::RollBack { step, anomaly: Anomaly::Spike(_), .. } => {
                together(*step, "gradient norm", CauseKind::Spike)
            }
            TrainError::Overflow { step, .. }
            | TrainError::NotFinite { step, .. }
            | TrainError::Skipping { step, .. }
            | TrainError::RollBack { step, anomaly: Anomaly::NonFinite, .. } => {
                together(*step, "gradient norm", CauseKind::NonFinite)
            }
            TrainError::Rank(failure) => OwnFailure {
                rank: Some(failure.rank.0),
                about: failure.about.map(|rank| rank.0),
                step: failure.step,
                moment: Moment::InStep,
                instruction: failure.instruction.clone(),
                cause: Cause::new(failure.kind, failure.cause.clone()),
            },
        }
    }
}

/// The kind of `error`, and the rank that it is about where that is another one.
pub(crate) fn kind_of(error: &(dyn Error + 'static)) -> (CauseKind, Option<Rank>) {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<CommError>().map(kind_of_communication) {
            return found;
        }
        let found = error.downcast_ref::<DeviceError>().or_else(|| device_error_in(error)).map(kind_of_device);
        if let Some(found) = found {
            return found;
        }
        if error.is::<std::io::Error>() {
            return (kind_of_storage(&error.to_string()), None);
        }
        next = error.source();
    }
    (CauseKind::Other, None)
}

/// The device's error in one that is transparent, whose own source is that of the device's.
fn device_error_in<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a DeviceError> {
    let of_fetch = |error: &'a FetchError| match error {
        FetchError::Device(error) => Some(error),
        FetchError::Source(_) => None,
    };
    match error.downcast_ref::<OpenError>() {
        Some(OpenError::Device(error)) => Some(error),
        Some(OpenError::Fetch(error)) => of_fetch(error),
        Some(OpenError::Bind(_)) => None,
        None => error.downcast_ref::<FetchError>().and_then(of_fetch),
    }
}

fn kind_of_device(error: &DeviceError) -> (CauseKind, Option<Rank>) {
    match error {
        DeviceError::OutOfMemory { .. }
        | DeviceError::OutOfHostMemory { .. }
        | DeviceError::Buffers { .. }
        | DeviceError::Threads { .. } => (CauseKind::OutOfMemory, None),
        DeviceError::Communication(cause) => {
            let known = cause.downcast_ref::<CommError>().map(kind_of_communication);
            known.unwrap_or_else(|| kind_of_text(&cause.to_string()))
        }
        DeviceError::Accelerator { .. } => (CauseKind::Device, None),
        DeviceError::Stream { cause, .. } => kind_of_text(cause),
        DeviceError::Panicked { .. } => (CauseKind::Panic, None),
        DeviceError::Storage { reason, .. } => (kind_of_storage(reason), None),
        DeviceError::Corrupted { .. } => (CauseKind::Corruption, None),
        DeviceError::OutsideArena { .. } | DeviceError::Shape { .. } | DeviceError::Refused { .. } => {
            (CauseKind::Other, None)
        }
    }
}

fn kind_of_text(text: &str) -> (CauseKind, Option<Rank>) {
    let (kind, about) = CauseKind::of_text(text);
    (kind, about.map(Rank))
}

/// The kind of a failure of files, of which `text` tells the reason.
fn kind_of_storage(text: &str) -> CauseKind {
    if CauseKind::of_text(text).0 == CauseKind::DiskFull { CauseKind::DiskFull } else { CauseKind::Io }
}

fn kind_of_communication(error: &CommError) -> (CauseKind, Option<Rank>) {
    match error {
        CommError::Aborted { by, .. } => (CauseKind::OtherRank, Some(*by)),
        CommError::Deadline { peer, .. } => (CauseKind::Deadline, Some(*peer)),
        CommError::PeerLeft { peer, .. } => (CauseKind::OtherRank, Some(*peer)),
        CommError::Mismatch { .. } => (CauseKind::Disagreement, None),
        CommError::Library { .. } => (CauseKind::Deadline, None),
        CommError::UnequalSlices { .. } | CommError::TooManyMembers { .. } | CommError::NoSuchPosition { .. } => {
            (CauseKind::Other, None)
        }
    }
}

/// The numbers of a step, as the cause of a return to a checkpoint.
fn anomaly_text(anomaly: &Anomaly, loss: f64, gradient_norm: f64) -> String {
    match anomaly {
        Anomaly::NonFinite => format!("loss {loss}, gradient norm {gradient_norm}"),
        Anomaly::Spike(Spike { kind, value, usual, score }) => {
            format!(
                "{}: {value:.4} is {score:.1} robust deviations above {usual:.4}, the median of recent steps (loss {loss:.4}, gradient \
                 norm {gradient_norm:.4})",
                kind.name()
            )
        }
    }
}

fn remedy(sums: GradientSums) -> &'static str {
    match sums {
        GradientSums::Single => "A lower learning rate, a longer warm-up or clipping may help",
        GradientSums::Exact => {
            "Where train.sums = \"exact\" a gradient of 2048 or more does not fit either; \"single\", a lower learning rate, a longer warm-up \
             or a smaller model.init_std may help"
        }
    }
}

/// Where and why a rank failed.
#[derive(Clone, Debug, PartialEq)]
pub struct RankFailure {
    pub rank: Rank,
    /// Counted from 1; 0 before the first step.
    pub step: u32,
    /// The program around the instruction, an arrow at it.
    pub excerpt: String,
    pub instruction: String,
    pub cause: String,
    pub kind: CauseKind,
    /// The rank that was late or has left, where the cause is another one.
    pub about: Option<Rank>,
}

impl fmt::Display for RankFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.step, self.excerpt.is_empty()) {
            (0, true) => write!(f, "{} failed before the first step: {}", self.rank, self.cause)?,
            (step, _) => write!(f, "{} failed in step {step} at \"{}\": {}", self.rank, self.instruction, self.cause)?,
        }
        // Where another rank is the cause, its own process prints the program, and not every process of a large run.
        if !self.excerpt.is_empty() && self.kind != CauseKind::OtherRank {
            write!(f, "\n{}", self.excerpt)?;
        }
        Ok(())
    }
}

/// Lines of context before and after the arrow.
const CONTEXT: usize = 3;

/// The instructions around `index`, one a line, an arrow at it.
pub fn excerpt(instructions: &[impl fmt::Display], index: usize) -> String {
    let first = index.saturating_sub(CONTEXT);
    let last = (index + CONTEXT + 1).min(instructions.len());
    let mut text = String::new();
    for (number, instruction) in instructions.iter().enumerate().take(last).skip(first) {
        let arrow = if number == index { "-->" } else { "   " };
        text.push_str(&format!("  {arrow} {number:5}  {instruction}\n"));
    }
    text.truncate(text.trim_end().len());
    text
}
