//! The time of a step on a cluster, and where its time goes.
//!
//! The layers' own code is recorded on a `MetaDevice`; its operations become [`Kernel`]s, a cluster profile turns these
//! into time, and the event clock of `program` runs the linked step with it. Nothing here knows a model: a formula that
//! is not in this crate is in the layers.
//!
//! This crate is pure: no I/O, no threads, no clock.

#![forbid(unsafe_code)]

mod algorithm;
mod attention_price;
mod backward_graph;
mod chrome;
mod collective;
mod costs;
mod group_calls;
mod group_shape;
mod kept_beyond;
mod kernel;
mod lines;
mod memory;
mod memory_over_time;
mod moved;
mod mpi_collective;
mod overlapped;
mod own_collective;
mod pass_time;
mod price;
mod recorded;
mod spent;
mod svg;
mod svg_memory;
mod svg_rows;
mod svg_text;
mod time_axis;
mod trace;

pub use algorithm::Algorithms;
pub use chrome::ChromeTrace;
pub use collective::collective_ns;
pub use costs::{PassCost, StateCost, StepCosts, StepShape, updates};
pub use group_shape::GroupShape;
pub use kept_beyond::KeptBeyond;
pub use kernel::{AttentionPass, Kernel, Product, ProductFormat, kernels_of};
pub use lines::{legend, lines};
pub use memory::{MemoryPart, RankMemory, least_bytes, memory, memory_over_time};
pub use memory_over_time::MemoryOverTime;
pub use moved::{Moved, Movements};
pub use overlapped::Issued;
pub use price::{kernel_ns, peak_flops_per_ns};
pub use recorded::{PassWork, RecordedUnits, UnitWork};
pub use spent::{Loss, Spent};
pub use svg::{Caption, share, svg};
pub use trace::{Block, BlockKind, Communication, RankTimes, RankTrace, TimedInstr, Trace};

// Tests name the crate as its users do.
#[cfg(test)]
extern crate self as sim;
#[cfg(test)]
mod tests;
