//! How much kernels have run.

use std::collections::BTreeMap;
use std::sync::Arc;

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

    /// Adds launches whose basic blocks were run `counts` times.
    fn add(&mut self, kernel: &Kernel, launches: u64, counts: &[u64]) {
        *self.launches.entry(kernel.name.clone()).or_default() += launches;
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

/// The runs of each kernel's basic blocks: opcodes are named when somebody asks.
#[derive(Debug, Default)]
pub struct KernelCounts(Vec<KernelCount>);

#[derive(Debug)]
struct KernelCount {
    kernel: Arc<Kernel>,
    launches: u64,
    blocks: Vec<u64>,
}

impl KernelCounts {
    /// Adds a launch whose basic blocks were run `counts` times.
    pub fn add(&mut self, kernel: &Arc<Kernel>, counts: Vec<u64>) {
        match self.0.iter_mut().find(|count| Arc::ptr_eq(&count.kernel, kernel)) {
            Some(count) => {
                count.launches += 1;
                count.blocks.iter_mut().zip(counts).for_each(|(total, more)| *total += more);
            }
            None => self.0.push(KernelCount { kernel: Arc::clone(kernel), launches: 1, blocks: counts }),
        }
    }

    /// The same by opcode.
    pub fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        for KernelCount { kernel, launches, blocks } in &self.0 {
            counters.add(kernel, *launches, blocks);
        }
        counters
    }
}
