//! This machine: its profile, and named layouts of a small model, predicted with it and run.

mod bench;
mod child;
mod gpu;
mod layouts;
mod profile;
mod resident;
mod stained;

pub use child::{ChildError, OPTION, answer, run_in_child};
pub use gpu::{MeasuredProducts, measure_gpus};
pub use layouts::{
    LAYOUTS, Layout, Measured, PlannedArena, Predicted, RunError, SMALL_MODEL, predict, prepared, run_layout,
};
pub use profile::{MeasureError, measure, measure_ranks};
