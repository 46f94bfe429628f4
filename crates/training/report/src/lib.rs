//! The records of runs, as one page without network: curves, memory, time, events and run files, drawn by scripts of
//! its own.
//!
//! Values in, text out: the caller reads the folders of runs and writes the page.

#![forbid(unsafe_code)]

mod columns;
mod csv;
mod metrics;
mod numbers;
mod page;
mod run;
mod tensorboard;
mod values;

pub use csv::csv;
pub use metrics::{Event, HeldOut, LeftOut, Metrics, StepRow, record_of};
pub use page::{Delivery, data, page};
pub use run::{Block, Fact, MemoryPlan, Run, StageMemory, StageTime, Timeline, TimelineSource};
pub use tensorboard::{EVENT_FILE, event_file};
pub use values::{MOST_NAMES, Values};

// Tests name the crate as its users do.
#[cfg(test)]
extern crate self as report;
#[cfg(test)]
mod tests;
