//! Registers of warps that have ended, whose room the next warps take.

use super::registers::{Registers, Small};
use crate::code::Kernel;
use crate::ptx::Special;

/// Room for the registers of warps.
#[derive(Debug, Default)]
pub struct SpareRegisters {
    /// Of warps of the launch that runs.
    of_launch: Vec<Registers>,
    /// Of those before.
    of_others: Vec<Registers>,
}

impl SpareRegisters {
    /// A launch begins, of any kernel.
    pub fn begin_launch(&mut self) {
        self.of_others.append(&mut self.of_launch);
    }

    /// Zeros, and the constants of `kernel`, which is that of the launch; `special` tells special registers.
    pub fn take(&mut self, kernel: &Kernel, special: impl Fn(Special) -> Small) -> Registers {
        match self.of_launch.pop() {
            Some(mut registers) => {
                registers.restart(kernel, special);
                registers
            }
            None => self.of_others.pop().unwrap_or_default().of_kernel(kernel, special),
        }
    }

    /// Keeps the registers of a warp of the launch that runs.
    pub fn keep(&mut self, registers: Registers) {
        self.of_launch.push(registers);
    }
}
