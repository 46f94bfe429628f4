//! A kernel with its arguments, and its state while it runs.

use super::global_order::BlockOrder;
use super::instruction_sets::InstructionSet;
use super::runs::Runs;
use super::spare::SpareRegisters;
use super::tensor_core::Rule;
use crate::checks::{AccessRanges, Checks};
use crate::code::Kernel;
use crate::memory::global::Global;
use crate::streams::WorkOrder;
use gpu::LaunchShape;

/// How much a launch may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Instructions of all its warps together.
    pub warp_instructions: u64,
}

/// A kernel with its arguments.
#[derive(Clone, Debug)]
pub struct Launch<'a> {
    pub kernel: &'a Kernel,
    /// Blocks and threads.
    pub shape: LaunchShape,
    /// The bytes of all arguments, each at its place.
    pub parameters: Vec<u8>,
    /// How much it may do.
    pub limits: Limits,
    pub checks: &'a Checks,
    /// The ranges of memory that it may use; all where there are none.
    pub ranges: Option<&'a AccessRanges>,
    /// Its place among all work.
    pub order: &'a WorkOrder,
    /// The rule of matrix products.
    pub rule: Rule,
}

/// A launch that is running.
#[derive(Debug)]
pub struct Run<'a> {
    pub launch: &'a Launch<'a>,
    /// The memory of the GPU.
    pub global: &'a mut Global,
    /// Instructions of warps that are left to it.
    pub left: u64,
    /// Room for registers.
    pub spare: &'a mut SpareRegisters,
    /// Room for the accesses of an instruction.
    pub runs: Runs,
    /// The allocation that was found last.
    pub last: usize,
    /// The order between its blocks.
    pub blocks: BlockOrder,
    /// How often each basic block was run by a warp.
    pub counts: Vec<u64>,
    /// The vector instructions that it uses.
    pub set: InstructionSet,
}
