//! The most multiply-adds that one core does: independent chains in registers.

use cpu::instruction_set::InstructionSet;
use cpu::peak::core_flops_per_second;

/// GFLOP/s of fused multiply-adds in an instruction set's registers, the best of several runs.
pub fn gflops(instruction_set: InstructionSet) -> f64 {
    core_flops_per_second(instruction_set) / 1e9
}
