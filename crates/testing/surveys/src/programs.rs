//! The surveys, each with its options.

pub mod accuracy;
pub mod equality;
pub mod expert_pairs;
pub mod gpu_conformance;
pub mod interleavings;
pub mod kernel_archive;
pub mod kernel_times;
pub mod long_sequences;
pub mod matrix;
pub mod pairs;
pub mod reliability;
pub mod scale;
