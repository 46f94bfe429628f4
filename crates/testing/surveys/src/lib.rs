//! Surveys of layouts: one space of layouts, drawers that choose points of it, and the runs and counts of pages: how
//! equal layouts are, how runs survive that are killed, stopped or damaged, and how far predictions are off.

#![forbid(unsafe_code)]

pub mod accuracy;
pub mod arena_use;
pub mod conformance;
pub mod covering;
pub mod drawers;
pub mod expert_pairs;
pub mod golden;
pub mod interleavings;
pub mod kept;
pub mod kernel_times;
pub mod long_sequences;
pub mod page;
pub mod pairs;
pub mod random_choices;
pub mod reliability;
pub mod resident;
pub mod results;
pub mod sample;
pub mod scale;
pub mod space;
pub mod spread_experts;
pub mod survey;
pub mod this_machine;
