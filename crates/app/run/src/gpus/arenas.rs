//! The arenas of a run in the memory of the GPUs of this host.

use config::figures::{bytes, counted};
use config::{Products, RunConfig};
use mesh::{Axis, Rank};
use train::{GpuMemory, RunDevice, Setup};

use crate::failure::Failure;
use crate::gpus::devices::{has_gpus, run_device};
use crate::memory::machine::{LimitSource, MemoryLimit, process_limit};
use crate::memory::need::{self, MemoryBudget};

/// Checks that the GPUs of this host have the memory for `host`, the ranks there, in `processes` processes, and that
/// the host has it for state that they keep there.
///
/// # Errors
/// A GPU or a host that is too small, a GPU that cannot be opened.
pub fn check_memory(device: &RunDevice, setup: &Setup, host: &[Rank], processes: usize) -> Result<(), Failure> {
    match device {
        RunDevice::Cpu => Ok(()),
        RunDevice::Gpus(gpus) => {
            let checked = gpus.check_memory(&arena_bytes(setup, host), processes, products_of(setup));
            checked.map_err(|error| Failure::Input(error.to_string()))?;
            check_host_memory(setup, host, process_limit())
        }
    }
}

/// Checks that this host has the memory for what `host`, the ranks there, offload.
pub fn check_host_memory(setup: &Setup, host: &[Rank], limit: Option<MemoryLimit>) -> Result<(), Failure> {
    let of_rank = |rank: &Rank| setup.plan(setup.mesh.coord(*rank).along(Axis::Pp)).host_bytes() as u64;
    let needed: u64 = host.iter().map(of_rank).sum();
    let Some(limit) = limit.filter(|limit| needed > limit.bytes) else { return Ok(()) };
    let offload = setup.train.offload;
    Err(Failure::Input(format!(
        "train.offload = \"{}\" does not fit: {} need {} of pinned memory on this host, {} has {}; {}",
        offload.name(),
        counted(host.len() as u64, "rank"),
        bytes(needed),
        limit.source,
        bytes(limit.bytes),
        offload.remedy()
    )))
}

/// Checks that the GPU of a process with one rank has the memory for it and for NCCL. Other ranks of `host` have GPUs
/// of their own.
///
/// # Errors
/// The errors of [`check_memory`].
pub fn check_own_memory(device: &RunDevice, setup: &Setup, host: &[Rank], own: &[Rank]) -> Result<(), Failure> {
    let RunDevice::Gpus(gpus) = device else { return Ok(()) };
    for (local, rank) in host.iter().enumerate().filter(|(_, rank)| own.contains(rank)) {
        let bytes = arena_bytes(setup, &[*rank]).into_iter().sum();
        gpus.check_memory_of_one(local, bytes, products_of(setup))
            .map_err(|error| Failure::Input(error.to_string()))?;
    }
    check_host_memory(setup, host, process_limit())
}

/// A line for each GPU of this host with the ranks and the memory of `host`; nothing for other devices.
///
/// # Errors
/// A GPU that cannot be opened.
pub fn memory_lines(device: &RunDevice, setup: &Setup, host: &[Rank]) -> Result<String, Failure> {
    let RunDevice::Gpus(gpus) = device else { return Ok(String::new()) };
    let memory = gpus.memory(&arena_bytes(setup, host), 1, products_of(setup));
    let memory = memory.map_err(|error| Failure::Input(error.to_string()))?;
    Ok(lines_of(&memory))
}

/// A line for each GPU.
pub fn lines_of(memory: &[GpuMemory]) -> String {
    memory.iter().map(|gpu| format!("device  {gpu}\n")).collect()
}

/// The GPUs of this machine for a run whose ranks are all on it, once their memory suffices; none for other devices.
///
/// # Errors
/// A device that this machine does not have, or that is too small.
pub fn checked(config: &RunConfig, setup: &Setup) -> Result<Vec<GpuMemory>, Failure> {
    if !has_gpus(config) {
        return Ok(vec![]);
    }
    let (device, host) = (run_device(config)?, setup.mesh.ranks().collect::<Vec<_>>());
    let RunDevice::Gpus(gpus) = &device else { return Ok(vec![]) };
    let memory = gpus.memory(&arena_bytes(setup, &host), 1, products_of(setup));
    let memory = memory.map_err(|error| Failure::Input(error.to_string()))?;
    match memory.iter().find(|gpu| gpu.needed_bytes() > gpu.free_bytes) {
        None => Ok(memory),
        Some(small) => {
            let layout = need::problem(config, setup, MemoryBudget::Together(shared_by_ranks(&memory)));
            let layout = layout.map_or(String::new(), |problem| format!("; with these, {}", problem.remedy));
            Err(Failure::Input(format!("{small} does not fit; use more GPUs{layout}")))
        }
    }
}

/// Memory of all arenas of a run: each has as much as a rank on the GPU that has the least for each of its ranks.
pub fn shared_by_ranks(memory: &[GpuMemory]) -> MemoryLimit {
    let ranks: usize = memory.iter().map(|gpu| gpu.ranks).sum();
    let of_rank = |gpu: &GpuMemory| gpu.free_bytes.saturating_sub(gpu.margin_bytes) / gpu.ranks.max(1) as u64;
    let least = memory.iter().map(of_rank).min().unwrap_or(0);
    MemoryLimit { bytes: least.saturating_mul(ranks as u64), source: LimitSource::Accelerator }
}

fn products_of(setup: &Setup) -> Products {
    setup.train.precision.products()
}

/// Memory of GPUs for the arenas of a host's ranks.
pub fn arena_bytes(setup: &Setup, host: &[Rank]) -> Vec<u64> {
    let of_rank = |rank: &Rank| setup.programs.arena_bytes(setup.mesh.coord(*rank).along(Axis::Pp)) as u64;
    host.iter().map(of_rank).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::machine::LimitSource;

    #[test]
    fn a_host_without_room_for_offloaded_state_is_refused() {
        let overrides = ["train.offload=optimizer", "parallelism.zero=0"].map(String::from);
        let RunConfig { model, parallelism, train, run, .. } = RunConfig::load("", "", &overrides).expect("legal");
        let setup = Setup::of_run(model, parallelism, train, &run.samples).expect("a plan");
        let ranks: Vec<Rank> = setup.mesh.ranks().collect();
        let limit = |bytes| Some(MemoryLimit { bytes, source: LimitSource::Machine });
        assert!(check_host_memory(&setup, &ranks, limit(1 << 30)).is_ok());
        let said = check_host_memory(&setup, &ranks, limit(1 << 20)).expect_err("too little").to_string();
        assert!(said.starts_with("train.offload = \"optimizer\" does not fit: 8 ranks need "), "{said}");
        assert!(said.contains("of pinned memory on this host, this machine has 1.05 MB; use fewer ranks"), "{said}");
    }

    #[test]
    fn arenas_share_the_memory_of_the_gpu_that_has_the_least_for_each_rank() {
        let gpu = |ranks: usize, free_bytes| GpuMemory {
            gpu: "GPU 0".into(),
            ranks,
            arena_bytes: 0,
            margin_bytes: 10 * ranks as u64,
            free_bytes,
            total_bytes: free_bytes,
        };
        assert_eq!(shared_by_ranks(&[gpu(4, 1040)]).bytes, 4 * 250);
        assert_eq!(shared_by_ranks(&[gpu(2, 1040), gpu(1, 1040)]).bytes, 3 * 510);
        assert_eq!(shared_by_ranks(&[gpu(1, 5)]).bytes, 0);
    }
}
