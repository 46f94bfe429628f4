//! The GPUs of this machine: their profile, from times of operations on all of them at once.

mod bench;
mod profile;

pub use profile::{MeasuredProducts, measure_gpus};
