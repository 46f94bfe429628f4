//! Surveys of layouts: one space of layouts, drawers that choose points of it, and what is run and counted for the pages
//! that show how equal layouts are and how runs survive that are killed, stopped or damaged.

#![forbid(unsafe_code)]

pub mod arena_use;
pub mod conformance;
pub mod covering;
pub mod drawers;
pub mod golden;
pub mod interleavings;
pub mod kernel_times;
pub mod long_sequences;
pub mod page;
pub mod pairs;
pub mod reliability;
pub mod results;
pub mod sample;
pub mod scale;
pub mod space;
pub mod survey;
