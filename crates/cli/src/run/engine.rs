//! The ranks of a run as threads of this process.

use std::time::Duration;

use comm::Timeouts;
use config::RunConfig;
use train::{Engine, EngineOptions, Setup, open_engine};

use crate::failure::Failure;
use crate::gpu::run_device;

/// Fresh ranks for `setup`, all in this process, with the threads and the deadlines that `config` gives them.
///
/// # Errors
/// A device that this machine does not have.
pub fn engine(config: &RunConfig, setup: &Setup) -> Result<Box<dyn Engine>, Failure> {
    let options = options(config, setup, config.parallelism.world_size());
    Ok(open_engine(setup.mesh, options, &run_device(config)?))
}

/// Resources of the ranks of a run, of which `ranks` are on this host.
pub fn options(config: &RunConfig, setup: &Setup, ranks: usize) -> EngineOptions {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let overlap = setup.parallelism.overlap_on_cpus();
    let timeouts = timeouts_on(config, ranks, cores);
    EngineOptions { timeouts, overlap, threads_per_rank: config.run.threads_per_rank }
}

/// Threads that compute, of all ranks.
pub fn threads(config: &RunConfig) -> usize {
    config.parallelism.world_size().saturating_mul(config.run.threads_per_rank)
}

/// `run.timeout_seconds` as the waits of a run: where threads take turns on cores, each may take that many times longer.
fn timeouts_on(config: &RunConfig, ranks: usize, cores: usize) -> Timeouts {
    let wait = Duration::from_secs_f32(config.run.timeout_seconds);
    Timeouts { wait }.scaled(ranks.saturating_mul(config.run.threads_per_rank), cores)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_take_turns_are_waited_for_longer() {
        let mut config = RunConfig::quick_start();
        let seconds =
            |config: &RunConfig, cores| timeouts_on(config, 8, cores).wait.as_secs_f32() / config.run.timeout_seconds;
        assert_eq!([1, 2, 3, 8, 64].map(|cores| seconds(&config, cores)), [8.0, 4.0, 3.0, 1.0, 1.0]);
        config.run.threads_per_rank = 2;
        assert_eq!([1, 2, 3, 8, 64].map(|cores| seconds(&config, cores)), [16.0, 8.0, 6.0, 2.0, 1.0]);
    }
}
