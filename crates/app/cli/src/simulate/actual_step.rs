//! The published time of a step, next to its prediction.
//!
//! Only predictions for the trainer of that run are compared with it.

use std::fmt;

use run::failure::Failure;
use run::presets::{self, Published};
use serde::Serialize;

use crate::arguments::cluster::SimulateArguments;

/// Seconds of the published run, and how far the prediction is from them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Actual {
    /// Seconds of a step.
    pub step_s: f64,
    /// The trainer, as `--software` names it.
    pub software: &'static str,
    /// `published`, or the number that the seconds are derived from.
    pub origin: String,
    /// `predicted / actual - 1`, where both are of one trainer.
    pub error: Option<f64>,
}

impl Actual {
    /// The seconds of the preset that `arguments` name, unless a key or the cluster of the run was changed.
    ///
    /// # Errors
    /// An unknown preset.
    pub fn of(arguments: &SimulateArguments, predicted_ns: u64) -> Result<Option<Actual>, Failure> {
        let preset = arguments.run.file.as_deref().map(presets::named).transpose()?.flatten();
        let Some(published) = preset.and_then(|preset| preset.published) else { return Ok(None) };
        let Published { cluster, software, step_s, origin } = published;
        let is_elsewhere = arguments.cluster.cluster.as_ref().is_some_and(|asked| asked != cluster);
        if is_elsewhere || !arguments.run.overrides.is_empty() {
            return Ok(None);
        }
        let is_alike = arguments.cluster.software.as_deref() == Some(software);
        let error = is_alike.then(|| predicted_ns as f64 * 1e-9 / step_s - 1.0);
        Ok(Some(Actual { step_s, software, origin: origin.to_string(), error }))
    }
}

impl fmt::Display for Actual {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Actual { step_s, software, origin, error } = self;
        write!(f, "{step_s} s with {software}, {origin}; ")?;
        match error {
            Some(error) if *error < 0.0 => write!(f, "predicted {:.1} % too short", -100.0 * error),
            Some(error) => write!(f, "predicted {:.1} % too long", 100.0 * error),
            None => write!(f, "another trainer: --software={software} predicts that one"),
        }
    }
}
