//! The records of a run: steps, measurements and times, and the lines about them.

pub(crate) mod anomaly;
pub mod communication;
pub(crate) mod cpu_time;
pub(crate) mod idle_experts;
pub(crate) mod metrics_file;
pub(crate) mod rates;
pub(crate) mod record;
pub mod step_line;
pub mod timeline;
pub(crate) mod unwritten;
