//! Generators of the pages that show how equal layouts are: every layout of a few models, every form of sharding with
//! every schedule, and runs that are killed, stopped or damaged.

#![forbid(unsafe_code)]

pub mod arena_use;
pub mod cases;
pub mod conformance;
pub mod golden;
pub mod interleavings;
pub mod kernel_times;
pub mod matrix;
pub mod page;
pub mod pairs;
pub mod reliability;
pub mod results;
pub mod sample;
pub mod scale;
pub mod shared_sequences;
pub mod survey;
