//! Ranks as threads of this process, computing on the CPU. Other processes may have other ranks of the mesh.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use comm::processes::{LocalRanks, MpiGroups, OpenError, WorldMember};
use comm::{
    AbortCause, ChannelId, GroupChannels, HostCommunicator, HostMap, Library, LibraryGroup, StreamTransports,
    ThreadTransport, Timeouts, Transport, WorldFailure, processes,
};
use config::{ContextKind, Overlap, Parallelism};
use cpu::affinity::allowed_cores;
use cpu::{ArenaReader, CpuDevice, time_slice};
use device::{Arena, ArenaSize, Communicator, DeviceError, DeviceKind, Numerics, OnFailure, Stream, StreamQueues};
use mesh::{Axis, AxisSet, Group, Rank};
use nvidia::nccl;
use program::{PeerGroup, PeerGroups};

use crate::engine::open_engine::EngineOptions;
use crate::engine::{Communicators, Engine, EngineDescription, RankEngine};

/// A process as a member of a run: its number, its ranks and its listeners.
pub struct ProcessMember {
    /// Its number in the process map.
    pub process: usize,
    /// All processes.
    pub process_map: processes::ProcessMap,
    /// Its listeners; those that the process map names.
    pub listeners: processes::Listeners,
    /// The secret of the run.
    pub token: processes::WorldToken,
    /// A core for each thread that computes of each of its ranks, or none where the system places them.
    pub cores: Vec<usize>,
    /// NCCL, where it joins the ranks' GPUs: all processes give it, or none.
    pub nccl: Option<Arc<nccl::Library>>,
}

impl ProcessMember {
    /// All ranks on the host of this process, by process, then by rank.
    pub(super) fn ranks_of_host(&self) -> Vec<Rank> {
        let all = self.process_map.processes();
        let own = all.get(self.process).map(|process| &process.host);
        all.iter().filter(|process| Some(&process.host) == own).flat_map(|process| process.ranks.clone()).collect()
    }
}

/// Opens CPU ranks that share this process's memory.
pub struct ThreadEngine {
    groups: PeerGroups,
    timeouts: Timeouts,
    /// Of all ranks, the same in all processes.
    hosts: HostMap,
    /// Of the ranks of this process.
    ends: BTreeMap<usize, StreamTransports>,
    /// Whether `ends` are those that the world opened, and no transports around them.
    has_own_ends: bool,
    /// Streams of each rank that have a thread.
    queued: Vec<Stream>,
    threads_per_rank: usize,
    /// One for each thread of each rank, or none.
    cores: Vec<usize>,
    /// Makes the collectives of groups of several processes.
    library: Option<Arc<dyn Library>>,
}

impl ThreadEngine {
    /// An engine for ranks with these groups, every wait with the deadline of `timeouts`.
    pub fn new(groups: PeerGroups, timeouts: Timeouts) -> ThreadEngine {
        let ends = ends(groups.mesh().world_size(), &[], timeouts);
        let hosts = HostMap::one_host();
        ThreadEngine {
            groups,
            timeouts,
            hosts,
            ends,
            has_own_ends: true,
            queued: vec![],
            threads_per_rank: 1,
            cores: vec![],
            library: None,
        }
    }

    /// An engine for the ranks of one process of several: returns once all processes are connected, or when `ended`
    /// returns the reason for which the run has ended. The second value learns of failures of the world and reports
    /// them.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn of_process(
        groups: PeerGroups,
        options: EngineOptions,
        member: ProcessMember,
        ended: &dyn Fn() -> Option<String>,
    ) -> Result<(ThreadEngine, WorldFailure), OpenError> {
        let EngineOptions { timeouts, queued, threads_per_rank, library } = options;
        let ProcessMember { process, process_map, listeners, token, cores, nccl: _ } = member;
        let endpoint = library.and_then(|sums| Some((sums, listeners.mpi.clone()?)));
        let queued = queued.to_vec();
        let hosts = process_map.host_map();
        let ranks = process_map.processes().get(process).map_or(vec![], |own| own.ranks.clone());
        let num_lanes = NonZeroUsize::MIN.saturating_add(queued.len());
        let member = WorldMember { process, process_map: process_map.clone(), listeners, token, num_lanes, timeouts };
        let LocalRanks { ends: lanes, failure, .. } = processes::open_unless(member, ended)?;
        let library = endpoint.map(|(sums, endpoint)| {
            let of_library = groups_of(&groups, &ranks, num_lanes.get());
            let opened = MpiGroups::open(&endpoint, &process_map, of_library, sums, timeouts.wait, ended);
            opened.map(|opened| Arc::new(opened) as Arc<dyn Library>)
        });
        let library = library.transpose()?;
        let ends = by_stream(ranks.iter().map(|rank| rank.0).collect(), lanes, &queued);
        let has_own_ends = true;
        let engine =
            ThreadEngine { groups, timeouts, hosts, ends, has_own_ends, queued, threads_per_rank, cores, library };
        Ok((engine, failure))
    }

    /// The same engine, in which each of these streams of a rank has a thread of its own: [`queued_streams`] has those
    /// of a run.
    ///
    /// # Panics
    /// Transports are wrapped already: a stream with a thread has an end of its own, and all ends are made again.
    pub fn with_queues(self, queued: &[Stream]) -> ThreadEngine {
        assert!(self.has_own_ends, "streams are given threads before transports are wrapped");
        let ends = ends(self.groups.mesh().world_size(), queued, self.timeouts);
        ThreadEngine { ends, queued: queued.to_vec(), ..self }
    }

    /// The same engine, whose collectives move bytes as if the ranks were on these hosts: for counting in tests. No bit
    /// depends on it.
    pub fn with_hosts(self, hosts: HostMap) -> ThreadEngine {
        ThreadEngine { hosts, ..self }
    }

    /// The same engine, whose collectives are those of a library: for tests of what a library may do.
    pub fn with_library(self, library: Arc<dyn Library>) -> ThreadEngine {
        ThreadEngine { library: Some(library), ..self }
    }

    /// The same engine with `threads` threads that compute for each rank: its own, and a pool that ends with its
    /// device. Where the calling thread may use exactly as many cores as that makes threads, each thread stays on one;
    /// where there are more, another process may have the others, and where there are fewer, threads take turns.
    pub fn with_threads_per_rank(self, threads_per_rank: usize) -> ThreadEngine {
        let allowed = allowed_cores();
        let is_one_each = threads_per_rank > 1 && allowed.len() == threads_per_rank * self.ends.len();
        ThreadEngine { threads_per_rank, cores: if is_one_each { allowed } else { vec![] }, ..self }
    }

    /// The same engine over wrapped transports: for counting and for faults in tests.
    pub fn wrapped(self, wrap: impl Fn(Arc<dyn Transport>) -> Arc<dyn Transport>) -> ThreadEngine {
        let wrapped = |ends: StreamTransports| {
            let mut known: Vec<(Arc<dyn Transport>, Arc<dyn Transport>)> = vec![];
            ends.map(|end| {
                let found =
                    known.iter().find(|(inner, _)| Arc::ptr_eq(inner, &end)).map(|(_, outer)| Arc::clone(outer));
                found.unwrap_or_else(|| {
                    let outer = wrap(Arc::clone(&end));
                    known.push((end, Arc::clone(&outer)));
                    outer
                })
            })
        };
        let ends = self.ends.into_iter().map(|(rank, ends)| (rank, wrapped(ends))).collect();
        ThreadEngine { ends, has_own_ends: false, ..self }
    }

    fn ends_of(&self, rank: Rank) -> Result<&StreamTransports, DeviceError> {
        self.ends.get(&rank.0).ok_or_else(|| DeviceError::Communication(Box::new(RankElsewhere(rank))))
    }

    /// The streams of `rank`. A failure on one of their threads ends the run.
    pub(super) fn queues(&self, rank: Rank) -> Result<Arc<StreamQueues>, DeviceError> {
        let own = Arc::clone(&self.ends_of(rank)?[Stream::Compute.index()]);
        let on_failure: OnFailure = Arc::new(move |stream, error| {
            let description = format!("{rank} failed on its {stream:?} stream: {error}");
            own.abort(AbortCause { rank, description });
        });
        Ok(Arc::new(StreamQueues::start(&self.queued, &rank.to_string(), &on_failure)?))
    }

    /// An end of `rank` for failures, and its deadlines.
    pub(super) fn supervised(&self, rank: Rank) -> Result<(Arc<dyn Transport>, Timeouts), DeviceError> {
        Ok((Arc::clone(&self.ends_of(rank)?[Stream::Compute.index()]), self.timeouts))
    }

    /// Whether some streams of a rank have threads of their own.
    pub(super) fn has_queues(&self) -> bool {
        !self.queued.is_empty()
    }

    /// The groups of `rank` in the order in which all ranks open theirs, the world last.
    pub(super) fn peers(&self, rank: Rank) -> impl Iterator<Item = (PeerGroup, Group)> {
        let peers: Vec<_> = self.groups.of(rank).each().map(|(which, group)| (which, group.clone())).collect();
        peers.into_iter().chain([(PeerGroup::WORLD, self.groups.mesh().group(rank, AxisSet::ALL))])
    }

    /// The library's part for `group` on a stream.
    pub(super) fn library_group(&self, stream: Stream, group: &Group) -> Option<LibraryGroup> {
        self.library.as_ref()?.group(lane_of(&self.queued, stream), group)
    }

    /// The communicators of `rank`, over tensors of `arena`: for engines that share these ranks' memory and have
    /// devices of their own.
    ///
    /// # Errors
    /// A mesh with ranks along axes that no program divides work along.
    pub fn communicators(
        &self,
        rank: Rank,
        arena: &Arc<Arena>,
        queues: &Arc<StreamQueues>,
    ) -> Result<Communicators, DeviceError> {
        self.groups(rank, |GroupTransports { transports, hosts, channels }, group| {
            let of_library = |stream| self.library_group(stream, &group);
            let queues = Arc::clone(queues);
            let own = group.clone();
            Ok(Box::new(HostCommunicator::new(transports, own, hosts, channels, arena, queues, &of_library)))
        })
    }

    /// The communicators of `rank`, each as `open` makes it.
    ///
    /// # Errors
    /// The errors of [`ThreadEngine::communicators`] and of `open`.
    pub(super) fn groups(
        &self,
        rank: Rank,
        mut open: impl FnMut(GroupTransports<'_>, Group) -> Result<Box<dyn Communicator>, DeviceError>,
    ) -> Result<Communicators, DeviceError> {
        let transports = self.ends_of(rank)?;
        let opened = Communicators::open(&self.groups, rank, |which, group| {
            open(GroupTransports { transports, hosts: &self.hosts, channels: channels(which) }, group)
        });
        let end = Arc::clone(&transports[Stream::Compute.index()]);
        opened.map(|communicators| communicators.with_end(end))
    }
}

/// The transports, hosts and channels of a group of a rank.
pub(super) struct GroupTransports<'a> {
    /// The rank's ends of the transport, by stream.
    pub transports: &'a StreamTransports,
    /// The hosts of all ranks.
    pub hosts: &'a HostMap,
    /// The group's messages.
    pub channels: GroupChannels,
}

/// The tag spaces of a group. The ends of a pipeline are a group inside the pipeline's, so they need some of their own.
pub(super) fn channels(which: PeerGroup) -> GroupChannels {
    let (axes, usage) = match which {
        PeerGroup::Along(axes) => (axes, 0),
        PeerGroup::Ends => (Axis::Pp.into(), 1),
    };
    GroupChannels { collectives: ChannelId::new(axes, 2 * usage), sends: ChannelId::new(axes, 2 * usage + 1) }
}

impl Engine for ThreadEngine {
    fn open(&self, rank: Rank, size: ArenaSize, numerics: Numerics) -> Result<RankEngine, DeviceError> {
        numerics.accepted_by(DeviceKind::CPU, cpu::accepts)?;
        // Before the threads of streams and of the pool are started: they inherit it.
        time_slice::shorten();
        let arena = Arc::new(Arena::new(size.end_bytes())?);
        let queues = self.queues(rank)?;
        let communicators = self.communicators(rank, &arena, &queues)?;
        let memory = Box::new(ArenaReader::new(Arc::clone(&arena)));
        let number = self.ends.keys().position(|own| *own == rank.0);
        let cores = number.and_then(|number| self.cores.chunks(self.threads_per_rank).nth(number)).unwrap_or_default();
        let device = CpuDevice::new(arena)?
            .with_products(numerics.products)
            .with_threads(self.threads_per_rank, cores)?
            .with_queues(queues)?;
        Ok(RankEngine { device: Box::new(device), memory, communicators })
    }

    fn ranks(&self) -> Vec<Rank> {
        self.ends.keys().map(|rank| Rank(*rank)).collect()
    }

    fn describe(&self) -> EngineDescription {
        EngineDescription::of_cpu_ranks(self.threads_per_rank)
    }

    fn abort(&self, rank: Rank, description: &str) {
        // All ends of a world have the same failure.
        if let Some(ends) = self.ends.get(&rank.0).or_else(|| self.ends.values().next()) {
            ends[Stream::Compute.index()].abort(AbortCause { rank, description: description.into() });
        }
    }

    fn failure(&self) -> Option<(Rank, String)> {
        let cause = self.ends.values().next()?[Stream::Compute.index()].failure()?;
        Some((cause.rank, cause.description))
    }
}

/// The ends of a new world, by rank.
fn ends(world_size: usize, queued: &[Stream], timeouts: Timeouts) -> BTreeMap<usize, StreamTransports> {
    by_stream((0..world_size).collect(), ThreadTransport::lanes(world_size, 1 + queued.len(), timeouts), queued)
}

/// The ends of `ranks` in `lanes`: each stream that has a thread has a lane, and all others share one.
fn by_stream(
    ranks: Vec<usize>,
    lanes: Vec<Vec<ThreadTransport>>,
    queued: &[Stream],
) -> BTreeMap<usize, StreamTransports> {
    let lanes: Vec<Vec<Arc<dyn Transport>>> = lanes
        .into_iter()
        .map(|lane| lane.into_iter().map(|end| Arc::new(end) as Arc<dyn Transport>).collect())
        .collect();
    let of_rank = |(index, rank)| (rank, Stream::ALL.map(|stream| Arc::clone(&lanes[lane_of(queued, stream)][index])));
    ranks.into_iter().enumerate().map(of_rank).collect()
}

/// The lane of a stream where those of `queued` have threads of their own.
fn lane_of(queued: &[Stream], stream: Stream) -> usize {
    queued.iter().position(|other| *other == stream).map_or(0, |index| 1 + index)
}

/// The groups of `ranks` in every lane.
fn groups_of(all: &PeerGroups, ranks: &[Rank], num_lanes: usize) -> impl Iterator<Item = (usize, Group)> {
    let of_rank = |rank: &Rank| {
        let peers: Vec<Group> = all.of(*rank).each().map(|(_, group)| group.clone()).collect();
        peers.into_iter().chain([all.mesh().group(*rank, AxisSet::ALL)])
    };
    let groups: Vec<Group> = ranks.iter().flat_map(of_rank).collect();
    (0..num_lanes).flat_map(move |lane| groups.clone().into_iter().map(move |group| (lane, group)))
}

/// The streams of a rank that have a thread of their own.
pub fn queued_streams(parallelism: &Parallelism) -> &'static [Stream] {
    let passes_blocks = parallelism.degrees.cp > 1 && parallelism.context.kind == ContextKind::Ring;
    match parallelism.overlap_or_off() {
        Overlap::Off => &[],
        Overlap::On if passes_blocks => &[Stream::Reduce, Stream::Transfer, Stream::Shift],
        Overlap::On => &[Stream::Reduce, Stream::Transfer],
    }
}

/// A rank that another process has.
#[derive(Debug, thiserror::Error)]
#[error("{0} must be a rank of this process")]
struct RankElsewhere(Rank);

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mesh::{AxisSizes, Mesh};

    use super::*;

    #[test]
    #[should_panic(expected = "streams are given threads before transports are wrapped")]
    fn queues_drop_no_transport_that_wraps_another() {
        let groups = PeerGroups::new(Mesh::new(AxisSizes::ONE).expect("a mesh"), []);
        let engine = ThreadEngine::new(groups, Timeouts::new(Duration::from_secs(1)));
        engine.wrapped(|inner| inner).with_queues(&[Stream::Reduce]);
    }
}
