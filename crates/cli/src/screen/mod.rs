//! Output for people: streams, files, numbers, and the line of a running run.

pub mod aligned;
pub mod anomaly;
pub mod bar;
pub mod cpu_time;
pub mod journal;
pub mod metrics_file;
pub mod narrow;
pub mod output;
pub mod patience;
pub mod progress;
pub mod rates;
pub mod record;
pub mod step_line;
pub mod terminal;
pub mod tokenize_progress;
pub mod unanswered;
pub mod unwritten;
