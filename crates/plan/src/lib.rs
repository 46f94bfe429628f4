//! Layouts before the cluster: what a step takes under a layout, how far that is from runs that were measured, and which layout is best.

#![forbid(unsafe_code)]

mod prediction;

pub use prediction::{Prediction, PreparedStep};
