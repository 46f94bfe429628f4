//! Averages of weights over the steps of a run.

use crate::training::TrainSpec;

/// Whether a run keeps an exponential moving average (EMA) of its weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Averages {
    /// It keeps the weights only.
    Off,
    /// After each update, `average = decay * average + (1 - decay) * weights` in single precision; it begins as the
    /// weights of the start.
    Kept,
}

impl TrainSpec {
    /// Whether the run averages its weights.
    pub fn averages(&self) -> Averages {
        if self.ema_decay.is_some() { Averages::Kept } else { Averages::Off }
    }
}
