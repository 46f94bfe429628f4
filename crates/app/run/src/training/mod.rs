//! A run from its first step or its newest checkpoint, its folder, and its end.

mod algorithms_file;
mod attempt;
mod candidates;
pub mod event_log;
mod first_process;
mod library_versions;
mod measured_trace;
mod missing;
pub mod observer;
mod once_per_run;
pub mod open;
mod other_process;
mod product_algorithms;
mod progress;
mod ranks;
mod resume;
mod roll_back;
mod session;
mod train;
mod uploads;
mod work_times;
