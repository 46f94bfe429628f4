//! Samples of the surveys.

mod accuracy;
mod conformance;
mod equality;
mod expert_memory;
mod expert_pairs;
mod golden;
mod matrix;
mod overlap;
mod pairs;
mod reliability;
mod ring_order;
mod scale;
mod schedules;
mod shared_sequences;
mod spread_experts;
mod this_machine;
