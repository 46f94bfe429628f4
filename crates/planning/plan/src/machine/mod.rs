//! This machine: its profile, measured.

mod bench;
mod gpu;
mod profile;

pub use gpu::{MeasuredProducts, measure_gpus};
pub use profile::{MeasureError, measure, measure_ranks};
