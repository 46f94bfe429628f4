//! This machine: its profile, and named layouts of a small model, predicted with it and run.

mod bench;
mod layouts;
mod profile;

pub use layouts::{LAYOUTS, MachineRun, RunError, SMALL_MODEL, run_layouts};
pub use profile::{MeasureError, measure};
