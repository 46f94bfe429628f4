//! The same lanes with the vector instructions of the processor.

use super::arithmetic::arithmetic;
use super::matrix::product;
use super::registers::{Lanes, Registers};
use super::tensor_core::Rule;
use crate::code::{Instruction, MatrixProduct, Op};

/// A set of vector instructions that the processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstructionSet(Set);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Set {
    /// The set of the compiler's target.
    Portable,
    /// AVX2, fused multiply-add and bit counts.
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

impl InstructionSet {
    /// The set that every processor has.
    pub fn portable() -> InstructionSet {
        InstructionSet(Set::Portable)
    }

    /// The widest set of this processor.
    pub fn widest() -> InstructionSet {
        #[cfg(target_arch = "x86_64")]
        if ["avx2", "fma", "bmi1", "bmi2", "lzcnt", "popcnt"].iter().all(|feature| has(feature)) {
            return InstructionSet(Set::Avx2);
        }
        InstructionSet::portable()
    }

    /// Runs the leading instructions of `instructions` that need no other lane and no memory; returns their number.
    pub fn run(self, registers: &mut Registers, lanes: Lanes, instructions: &[Instruction]) -> usize {
        match self.0 {
            Set::Portable => run_lanes(registers, lanes, instructions),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `widest` makes this set only where the processor has all features of `run_avx2`.
            Set::Avx2 => unsafe { run_avx2(registers, lanes, instructions) },
        }
    }
}

impl InstructionSet {
    /// Runs a product of matrices.
    pub fn multiply(self, registers: &mut Registers, op: &MatrixProduct, rule: Rule) {
        match self.0 {
            Set::Portable => product(registers, op, rule),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `widest` makes this set only where the processor has all features of `multiply_avx2`.
            Set::Avx2 => unsafe { multiply_avx2(registers, op, rule) },
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
fn multiply_avx2(registers: &mut Registers, op: &MatrixProduct, rule: Rule) {
    product(registers, op, rule);
}

#[cfg(target_arch = "x86_64")]
fn has(feature: &str) -> bool {
    match feature {
        "avx2" => std::arch::is_x86_feature_detected!("avx2"),
        "fma" => std::arch::is_x86_feature_detected!("fma"),
        "bmi1" => std::arch::is_x86_feature_detected!("bmi1"),
        "bmi2" => std::arch::is_x86_feature_detected!("bmi2"),
        "lzcnt" => std::arch::is_x86_feature_detected!("lzcnt"),
        "popcnt" => std::arch::is_x86_feature_detected!("popcnt"),
        _ => false,
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
fn run_avx2(registers: &mut Registers, lanes: Lanes, instructions: &[Instruction]) -> usize {
    run_lanes(registers, lanes, instructions)
}

#[inline(always)]
fn run_lanes(registers: &mut Registers, lanes: Lanes, instructions: &[Instruction]) -> usize {
    for (index, instruction) in instructions.iter().enumerate() {
        let lanes = match instruction.guard {
            Some(guard) => lanes & registers.lanes_of(guard),
            None => lanes,
        };
        if let Op::Arithmetic(op) = &instruction.op {
            arithmetic(registers, lanes, op);
        } else if instruction.op != Op::Nothing {
            return index;
        }
    }
    instructions.len()
}
