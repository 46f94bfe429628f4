//! How much kernels have run.

use std::collections::BTreeMap;

use crate::code::Kernel;

/// Instructions of warps since the GPU was opened, by opcode with its modifiers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Instructions by opcode.
    pub warp_instructions: BTreeMap<String, u64>,
    /// Launches by kernel.
    pub launches: BTreeMap<String, u64>,
}

impl Counters {
    /// All instructions together.
    pub fn total(&self) -> u64 {
        self.warp_instructions.values().sum()
    }

    /// Adds a launch whose basic blocks were run `counts` times.
    pub fn add(&mut self, kernel: &Kernel, counts: &[u64]) {
        *self.launches.entry(kernel.name.clone()).or_default() += 1;
        for (block, count) in kernel.blocks.iter().zip(counts).filter(|(_, count)| **count > 0) {
            for instruction in &kernel.instructions[block.first..block.end] {
                let opcode = &kernel.sources[instruction.source as usize].opcode;
                match self.warp_instructions.get_mut(opcode) {
                    Some(total) => *total += count,
                    None => {
                        self.warp_instructions.insert(opcode.clone(), *count);
                    }
                }
            }
        }
    }
}
