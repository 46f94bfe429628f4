//! The one place that chooses the engine of a run.

use comm::processes::OpenError;
use comm::{LibrarySums, Timeouts, WorldFailure};
use config::Overlap;
use cpu::affinity::allowed_cores;
use mesh::Mesh;

use crate::engine::thread_engine::{ProcessSeat, ThreadEngine};
use crate::engine::{Engine, EngineDescription};

/// Resources of the ranks of an engine, equal for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Deadlines of every wait for another rank.
    pub timeouts: Timeouts,
    /// Whether ranks communicate while they compute.
    pub overlap: Overlap,
    /// Threads that compute for a rank.
    pub threads_per_rank: usize,
    /// Sums that the library of MPI makes, with all gathers, where ranks of several processes use one; `None` where all
    /// collectives are pleach's own.
    pub library: Option<LibrarySums>,
}

/// Fresh ranks of `mesh`: threads of this process that compute on its cores.
pub fn open_engine(mesh: Mesh, options: EngineOptions) -> Box<dyn Engine> {
    let EngineOptions { timeouts, overlap, threads_per_rank, library: _ } = options;
    let threads = ThreadEngine::new(mesh, timeouts).with_overlap(overlap);
    Box::new(threads.with_threads_per_rank(threads_per_rank))
}

/// The ranks of one process of several: threads that compute on its cores. Returns once all processes are connected,
/// or when `ended` returns the reason for which the run has ended. The second value learns of failures of the world and
/// reports them.
///
/// # Errors
/// See [`OpenError`].
pub fn open_process_engine(
    mesh: Mesh,
    options: EngineOptions,
    seat: ProcessSeat,
    ended: &dyn Fn() -> Option<String>,
) -> Result<(Box<dyn Engine>, WorldFailure), OpenError> {
    let (threads, failure) = ThreadEngine::of_process(mesh, options, seat, ended)?;
    Ok((Box::new(threads), failure))
}

/// Cores on which threads of an engine that is opened now may compute, in ascending order; empty where the system does not say.
pub fn engine_cores() -> Vec<usize> {
    allowed_cores()
}

/// Facts of the engine that [`open_engine`] makes, for reports that open no rank.
pub fn describe_engine(threads_per_rank: usize) -> EngineDescription {
    EngineDescription::of_cpu_ranks(threads_per_rank)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mesh::AxisSizes;

    use super::*;

    #[test]
    fn the_description_without_an_engine_is_that_of_the_engine() {
        let timeouts = Timeouts { wait: Duration::from_secs(1) };
        for (overlap, threads_per_rank) in [(Overlap::Off, 1), (Overlap::On, 3)] {
            let mesh = Mesh::new(AxisSizes::ONE).expect("a mesh");
            let engine = open_engine(mesh, EngineOptions { timeouts, overlap, threads_per_rank, library: None });
            assert_eq!(engine.describe(), describe_engine(threads_per_rank));
        }
    }
}
