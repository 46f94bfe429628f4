//! The answers of a run to steps whose loss or gradient is not finite, or far from what is usual.

use crate::names::names;

/// A step whose loss or gradient is not finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnNonFinite {
    /// The run ends; no weight was changed.
    Stop,
    /// The step changes no weight, and the run continues with the data of the next one.
    Skip,
    /// The run returns to its newest checkpoint, and continues with the data after that of the step.
    RollBack,
}

names! { OnNonFinite: "stop" = Stop, "skip" = Skip, "rollback" = RollBack }

/// A step whose loss or gradient norm is far above those of the steps before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnSpike {
    /// Nobody looks.
    Off,
    /// It is printed and recorded.
    Warn,
    /// Skips the update, as [`OnNonFinite::Skip`] does.
    Skip,
    /// Returns to a checkpoint, as [`OnNonFinite::RollBack`] does.
    RollBack,
}

names! { OnSpike: "warn" = Warn, "skip" = Skip, "rollback" = RollBack, "off" = Off }

/// Both answers, and the limit of a spike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Anomalies {
    /// The response to values that are not finite.
    pub on_nonfinite: OnNonFinite,
    pub on_spike: OnSpike,
    /// Robust standard deviations above the median of recent steps from which a value is a spike.
    pub spike_score: f32,
}

impl Default for Anomalies {
    fn default() -> Anomalies {
        Anomalies { on_nonfinite: OnNonFinite::Stop, on_spike: OnSpike::Warn, spike_score: 8.0 }
    }
}

impl Anomalies {
    /// Whether a step may make the run return to a checkpoint.
    pub fn rolls_back(&self) -> bool {
        self.on_nonfinite == OnNonFinite::RollBack || self.on_spike == OnSpike::RollBack
    }

    /// Whether the steps that change weights depend on earlier losses, which a resumed run must then know.
    pub fn depends_on_history(&self) -> bool {
        match self.on_spike {
            OnSpike::Off | OnSpike::Warn => false,
            OnSpike::Skip | OnSpike::RollBack => true,
        }
    }
}
