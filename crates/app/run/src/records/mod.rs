//! The records of a run: steps, measurements and times, and the lines about them.

pub mod anomaly;
pub mod communication;
pub mod cpu_time;
pub mod metrics_file;
pub mod rates;
pub mod record;
pub mod step_line;
pub mod timeline;
pub mod unwritten;
