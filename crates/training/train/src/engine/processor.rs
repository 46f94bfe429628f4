//! The processor that CPU ranks compute on: what it has and how fast it is, for reports that open no rank.

pub use cpu::instruction_set::InstructionSet;
pub use cpu::peak::{copy_bytes_per_second, core_tile_flops_per_second, flops_per_second};
