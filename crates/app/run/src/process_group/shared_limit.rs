//! The memory that all ranks of a run share.

use config::{DeviceChoice, RunConfig};

use crate::memory::machine::{MemoryLimit, process_limit};
use crate::process_group::place::Launched;

/// The memory that all ranks of `config` share: none where a launcher started several processes, whose hosts are
/// checked when they have met, and none where arenas are on GPUs, which are checked before they are allocated.
pub fn shared_limit(config: &RunConfig) -> Option<MemoryLimit> {
    match config.run.device {
        DeviceChoice::Cuda => return None,
        DeviceChoice::Cpu => {}
    }
    match Launched::of_runs(&[config]) {
        Ok(Launched::Several(_)) => None,
        // Variables that cannot be used are refused when the processes meet.
        Ok(Launched::Alone | Launched::InFirst) | Err(_) => process_limit(),
    }
}
