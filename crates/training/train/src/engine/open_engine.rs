//! The one place that chooses the engine of a run.

use std::sync::Arc;

use comm::processes::OpenError;
use comm::{LibrarySums, Timeouts, WorldFailure};
use config::DeviceChoice;
use cpu::affinity::allowed_cores;
use device::Stream;
use gpu_rank::QueueOrder;
use mesh::Rank;
use program::PeerGroups;

use crate::engine::gpu_engine::GpuEngine;
use crate::engine::run_device::{RunDevice, kind};
use crate::engine::thread_engine::{ProcessMember, ThreadEngine};
use crate::engine::{Engine, EngineDescription};

/// Resources of the ranks of an engine, equal for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Deadlines of every wait for another rank.
    pub timeouts: Timeouts,
    /// Streams of a rank that have a thread of their own, so that it communicates while it computes:
    /// [`queued_streams`](crate::queued_streams).
    pub queued: &'static [Stream],
    /// Threads that compute for a rank.
    pub threads_per_rank: usize,
    /// Sums that the library of MPI makes, with all gathers, where ranks of several processes use one; `None` where all
    /// collectives are pleach's own.
    pub library: Option<LibrarySums>,
}

/// Fresh ranks with these groups: threads of this process that compute on `device`.
pub fn open_engine(groups: PeerGroups, options: EngineOptions, device: &RunDevice) -> Box<dyn Engine> {
    let EngineOptions { timeouts, queued, threads_per_rank, library: _ } = options;
    let host: Vec<Rank> = groups.mesh().ranks().collect();
    let threads = ThreadEngine::new(groups, timeouts).with_queues(queued);
    match device {
        RunDevice::Cpu => Box::new(threads.with_threads_per_rank(threads_per_rank)),
        RunDevice::Gpus(gpus) => Box::new(GpuEngine::new(threads, &host, Arc::clone(gpus))),
    }
}

/// The ranks of one process of several: threads that compute on `device`. Returns once all processes are connected,
/// or when `ended` returns the reason for which the run has ended. The second value learns of failures of the world and
/// reports them.
///
/// # Errors
/// See [`OpenError`].
pub fn open_process_engine(
    groups: PeerGroups,
    options: EngineOptions,
    device: &RunDevice,
    member: ProcessMember,
    ended: &dyn Fn() -> Option<String>,
) -> Result<(Box<dyn Engine>, WorldFailure), OpenError> {
    let (host, nccl) = (member.ranks_of_host(), member.nccl.clone());
    // NCCL takes calls of one thread alone, and none of them waits for another rank: streams run side by side without
    // threads.
    let order = if options.queued.is_empty() { QueueOrder::One } else { QueueOrder::PerStream };
    let options = if nccl.is_some() { EngineOptions { queued: &[], ..options } } else { options };
    let (threads, failure) = ThreadEngine::of_process(groups, options, member, ended)?;
    let engine: Box<dyn Engine> = match device {
        RunDevice::Cpu => Box::new(threads),
        RunDevice::Gpus(gpus) => {
            let engine = GpuEngine::new(threads, &host, Arc::clone(gpus));
            match nccl {
                Some(library) => Box::new(engine.with_nccl(library, order)),
                None => Box::new(engine),
            }
        }
    };
    Ok((engine, failure))
}

/// Cores on which threads of an engine that is opened now may compute, in ascending order; empty where the system does
/// not say.
pub fn engine_cores() -> Vec<usize> {
    allowed_cores()
}

/// Facts of the engine that [`open_engine`] makes for this choice, for reports that open no rank and no GPU.
pub fn describe_engine(device: DeviceChoice, threads_per_rank: usize) -> EngineDescription {
    match device {
        DeviceChoice::Cpu => EngineDescription::of_cpu_ranks(threads_per_rank),
        DeviceChoice::Cuda => EngineDescription::of_gpu_ranks(kind(device)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mesh::{AxisSizes, Mesh};

    use super::*;

    #[test]
    fn the_description_without_an_engine_is_that_of_the_engine() {
        let timeouts = Timeouts::new(Duration::from_secs(1));
        for (queued, threads_per_rank) in [(&[] as &[Stream], 1), (&[Stream::Reduce, Stream::Transfer], 3)] {
            let groups = PeerGroups::new(Mesh::new(AxisSizes::ONE).expect("a mesh"), []);
            let options = EngineOptions { timeouts, queued, threads_per_rank, library: None };
            let engine = open_engine(groups, options, &RunDevice::Cpu);
            assert_eq!(engine.describe(), describe_engine(DeviceChoice::Cpu, threads_per_rank));
        }
    }
}
