//! The card that the GPU pretends to be, and what it checks.

use gpu::{Capability, DeviceFacts};

use crate::checks::Checks;
use crate::faults::FaultPlan;
use crate::streams::HardwareQueues;

/// The card that the GPU pretends to be, and what it checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Its compute capability. It decides the rule of matrix products, and which targets of PTX are accepted.
    pub capability: Capability,
    pub memory_bytes: u64,
    /// Multiprocessors that it reports.
    pub multiprocessors: u32,
    /// The most shared memory of a block.
    pub max_shared_bytes: u32,
    /// Queues that streams share; none where each has its own.
    pub hardware_queues: Option<HardwareQueues>,
    /// The numbers that decide which stream continues.
    pub seed: u64,
    /// Instructions of warps that a launch may run before it counts as endless.
    pub max_warp_instructions: u64,
    /// Work that may wait before some is run.
    pub max_backlog: usize,
    /// The checks of launches.
    pub checks: Checks,
    /// The failures that are planned.
    pub faults: FaultPlan,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            capability: Capability { major: 9, minor: 0 },
            memory_bytes: 8 << 30,
            multiprocessors: 4,
            max_shared_bytes: 227 << 10,
            hardware_queues: None,
            seed: 0,
            max_warp_instructions: 10_000_000_000,
            max_backlog: 4096,
            checks: Checks::default(),
            faults: FaultPlan::default(),
        }
    }
}

impl Settings {
    /// The facts that the driver reports.
    pub fn facts(&self, ordinal: usize) -> DeviceFacts {
        let architecture = if self.capability.major == 8 { "" } else { "a" };
        let mut uuid = *b"softgpu\0\0\0\0\0\0\0\0\0";
        uuid[8..].copy_from_slice(&(ordinal as u64).to_le_bytes());
        DeviceFacts {
            ordinal,
            name: format!("soft GPU ({}{architecture})", self.capability),
            capability: self.capability,
            memory_bytes: self.memory_bytes,
            multiprocessors: self.multiprocessors,
            max_shared_bytes: self.max_shared_bytes,
            uuid,
            bus_id: format!("0000:{ordinal:02x}:00.0"),
        }
    }
}
