//! `pleach train`: a run from its first step or its newest checkpoint, its folder, and its end.

pub mod attempt;
mod candidates;
pub mod engine;
pub mod fetch;
pub mod first_process;
pub mod grace;
pub mod interrupt;
pub mod kept_run;
pub mod measured_trace;
mod missing;
pub mod once_per_run;
pub mod other_process;
pub mod own_places;
mod past_records;
pub mod process_ranks;
pub mod resume;
pub mod roll_back;
pub mod run_folder;
pub mod signal_relay;
pub mod stored;
pub mod train;
pub mod unfinished;
pub mod unwatched_hosts;
pub mod uploads;
pub mod watchdog;
pub mod without_host;
pub mod work_times;
