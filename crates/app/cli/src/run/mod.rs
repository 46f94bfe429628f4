//! `pleach train`: a run from its first step or its newest checkpoint, its folder, and its end.

mod algorithms_file;
pub mod attempt;
mod candidates;
pub mod first_process;
pub mod journal;
mod library_versions;
pub mod measured_trace;
mod missing;
pub mod once_per_run;
pub mod other_process;
mod product_algorithms;
pub mod progress;
pub mod resume;
pub mod roll_back;
pub mod train;
pub mod uploads;
pub mod work_times;
