//! The ranks of a run as threads of this process.

use std::time::Duration;

use comm::{LibrarySums, Timeouts};
use config::figures::{counted, grouped};
use config::{CollectivesChoice, DeviceChoice, GradientSums, RunConfig};
use train::{Engine, EngineOptions, RunDevice, Setup, open_engine, queued_streams};

/// Fresh ranks for `setup` on `device`, all in this process, with the threads and the deadlines that `config` gives
/// them.
pub fn engine(config: &RunConfig, setup: &Setup, device: &RunDevice) -> Box<dyn Engine> {
    open_engine(setup.groups(), options(config, setup, config.parallelism.world_size()), device)
}

/// Resources of the ranks of a run, of which `ranks` are on this host.
pub fn options(config: &RunConfig, setup: &Setup, ranks: usize) -> EngineOptions {
    let cores = available_cores();
    let queued = queued_streams(&setup.parallelism);
    let timeouts = timeouts_on(config, ranks, cores);
    EngineOptions { timeouts, queued, threads_per_rank: config.run.threads_per_rank, library: library_sums(config) }
}

/// The sums that the library of MPI makes. Exact sums are asked for to keep bits, so what is not one stays in rank
/// order.
fn library_sums(config: &RunConfig) -> Option<LibrarySums> {
    match (config.run.collectives, config.train.sums) {
        (CollectivesChoice::Own, _) => None,
        (CollectivesChoice::Native, GradientSums::Single) => Some(LibrarySums::All),
        (CollectivesChoice::Native, GradientSums::Exact) => Some(LibrarySums::Integers),
    }
}

/// Cores that this process may use.
pub fn available_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Threads that compute, of all ranks.
pub fn threads(config: &RunConfig) -> usize {
    config.parallelism.world_size().saturating_mul(config.run.threads_per_rank)
}

/// A warning where the threads of `ranks` ranks on this host take turns on `cores` cores because each rank has several;
/// empty elsewhere.
pub fn crowded(config: &RunConfig, ranks: usize, cores: usize) -> String {
    let each = config.run.threads_per_rank;
    let threads = ranks.saturating_mul(each);
    if each == 1 || threads <= cores {
        return String::new();
    }
    let best = (cores / ranks.max(1)).max(1);
    format!(
        "threads {} of {} take turns on {}; use run.threads_per_rank = {best}\n",
        grouped(threads as u64),
        counted(ranks as u64, "rank"),
        counted(cores as u64, "core"),
    )
}

/// The least time for which a rank on a GPU waits for another one until the first step has ended: the slowest rank
/// compiles kernels, and all of them connect. PyTorch has the same value for every wait over NCCL.
const FIRST_STEP_ON_GPUS: Duration = Duration::from_secs(600);

/// `run.timeout_seconds` as the waits of a run: where threads take turns on cores, each may take that many times
/// longer.
fn timeouts_on(config: &RunConfig, ranks: usize, cores: usize) -> Timeouts {
    let wait = Duration::from_secs_f32(config.run.timeout_seconds);
    let first_step = match config.run.device {
        DeviceChoice::Cpu => wait,
        DeviceChoice::Cuda => FIRST_STEP_ON_GPUS,
    };
    Timeouts::new(wait).with_first_step(first_step).scaled(ranks.saturating_mul(config.run.threads_per_rank), cores)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_threads_than_cores_are_named_before_the_first_step() {
        let mut config = RunConfig::quick_start();
        assert_eq!(crowded(&config, 8, 2), "", "one thread each: the layout needs them");
        config.run.threads_per_rank = 1024;
        assert_eq!(
            crowded(&config, 8, 2),
            "threads 8,192 of 8 ranks take turns on 2 cores; use run.threads_per_rank = 1\n"
        );
        config.run.threads_per_rank = 4;
        assert_eq!(
            crowded(&config, 2, 4),
            "threads 8 of 2 ranks take turns on 4 cores; use run.threads_per_rank = 2\n"
        );
        assert_eq!(crowded(&config, 1, 4), "");
    }

    #[test]
    fn threads_that_take_turns_are_waited_for_longer() {
        let mut config = RunConfig::quick_start();
        let seconds =
            |config: &RunConfig, cores| timeouts_on(config, 8, cores).wait.as_secs_f32() / config.run.timeout_seconds;
        assert_eq!([1, 2, 3, 8, 64].map(|cores| seconds(&config, cores)), [8.0, 4.0, 3.0, 1.0, 1.0]);
        config.run.threads_per_rank = 2;
        assert_eq!([1, 2, 3, 8, 64].map(|cores| seconds(&config, cores)), [16.0, 8.0, 6.0, 2.0, 1.0]);
        let setting = timeouts_on(&config, 8, 2).setting();
        assert_eq!(setting.as_secs_f32(), config.run.timeout_seconds, "messages name the key with its own value");
    }

    #[test]
    fn ranks_on_gpus_have_more_time_for_the_first_step() {
        let mut config = RunConfig::quick_start();
        let first = |config: &RunConfig| timeouts_on(config, 8, 2).in_first_step();
        assert_eq!(first(&config), timeouts_on(&config, 8, 2), "cores need no more");
        config.run.device = DeviceChoice::Cuda;
        assert_eq!((first(&config).wait.as_secs(), first(&config).setting().as_secs()), (2400, 600));
        config.run.timeout_seconds = 700.0;
        assert_eq!(first(&config).setting().as_secs(), 700);
    }
}
