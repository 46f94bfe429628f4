//! How long ranks wait for each other.

use std::time::Duration;

use comm::Timeouts;
use spec::RunConfig;

/// `run.timeout_seconds` as the waits of a run on this machine: where ranks take turns on cores, each may take that many times longer.
pub fn timeouts(config: &RunConfig) -> Timeouts {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    timeouts_on(config, cores)
}

fn timeouts_on(config: &RunConfig, cores: usize) -> Timeouts {
    let wait = Duration::from_secs_f32(config.run.timeout_seconds);
    Timeouts { wait }.scaled(config.parallelism.world_size(), cores)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_take_turns_are_waited_for_longer() {
        let config = RunConfig::quick_start();
        let seconds = |cores| timeouts_on(&config, cores).wait.as_secs_f32() / config.run.timeout_seconds;
        assert_eq!([1, 2, 3, 8, 64].map(seconds), [8.0, 4.0, 3.0, 1.0, 1.0]);
    }
}
