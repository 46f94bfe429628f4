//! Ranks as threads of one process, computing on the CPU.

use std::sync::Arc;

use comm::{AbortCause, ChannelId, GroupChannels, HostCommunicator, ThreadTransport, Timeouts, Transport};
use config::Products;
use cpu::affinity::allowed_cores;
use cpu::{ArenaReader, CpuDevice};
use device::{Arena, DeviceError};
use mesh::{Axis, AxisSet, Group, Mesh, Rank};
use program::Peers;

use crate::engine::{Communicators, Engine, RankEngine};

/// Opens CPU ranks that share this process's memory.
pub struct ThreadEngine {
    mesh: Mesh,
    ends: Vec<Arc<dyn Transport>>,
    threads_per_rank: usize,
    /// One for each thread of each rank, or none.
    cores: Vec<usize>,
}

impl ThreadEngine {
    /// An engine for the ranks of `mesh`, every wait with the deadline of `timeouts`.
    pub fn new(mesh: Mesh, timeouts: Timeouts) -> ThreadEngine {
        let ends = ThreadTransport::world(mesh.world_size(), timeouts);
        let ends = ends.into_iter().map(|end| Arc::new(end) as Arc<dyn Transport>).collect();
        ThreadEngine { mesh, ends, threads_per_rank: 1, cores: vec![] }
    }

    /// The same engine with so many threads that compute for each rank: its own, and a pool that ends with its device. Where the calling
    /// thread may use exactly as many cores as that makes threads, each thread stays on one; where there are more, another process may
    /// have the others, and where there are fewer, threads take turns.
    pub fn with_threads_per_rank(self, threads_per_rank: usize) -> ThreadEngine {
        let allowed = allowed_cores();
        let is_one_each = threads_per_rank > 1 && allowed.len() == threads_per_rank * self.mesh.world_size();
        ThreadEngine { threads_per_rank, cores: if is_one_each { allowed } else { vec![] }, ..self }
    }

    /// The same engine over wrapped transports: for counting and for faults in tests.
    pub fn wrapped(self, wrap: impl Fn(Arc<dyn Transport>) -> Arc<dyn Transport>) -> ThreadEngine {
        ThreadEngine { ends: self.ends.into_iter().map(wrap).collect(), ..self }
    }

    /// The communicators of `rank`, over tensors of `arena`: for engines that share these ranks' memory and have devices of their own.
    pub fn communicators(&self, rank: Rank, arena: &Arc<Arena>) -> Communicators {
        let open = |group: Group, axes: AxisSet, usage: u16| {
            let channels = GroupChannels {
                collectives: ChannelId::new(axes, 2 * usage),
                sends: ChannelId::new(axes, 2 * usage + 1),
            };
            let transport = Arc::clone(&self.ends[rank.0]);
            Box::new(HostCommunicator::new(transport, group, channels, Arc::clone(arena)))
        };
        let Peers { tensor, data, replicas, pipeline, ends } = Peers::of(&self.mesh, rank);
        Communicators {
            tensor: open(tensor, Axis::Tp.into(), 0),
            data: open(data, Axis::DpInner.into(), 0),
            replicas: open(replicas, Axis::DpOuter.into(), 0),
            pipeline: open(pipeline, Axis::Pp.into(), 0),
            // The ends of a pipeline are a group inside the pipeline's, so they need a tag space of their own.
            tied: open(ends, Axis::Pp.into(), 1),
            world: open(self.mesh.group(rank, AxisSet::ALL), AxisSet::ALL, 0),
        }
    }
}

impl Engine for ThreadEngine {
    fn open(&self, rank: Rank, arena_bytes: usize, products: Products) -> Result<RankEngine, DeviceError> {
        let arena = Arc::new(Arena::new(arena_bytes)?);
        let communicators = self.communicators(rank, &arena);
        let memory = Box::new(ArenaReader::new(Arc::clone(&arena)));
        let cores = self.cores.chunks(self.threads_per_rank).nth(rank.0).unwrap_or_default();
        let device = CpuDevice::new(arena).with_products(products).with_threads(self.threads_per_rank, cores)?;
        Ok(RankEngine { device: Box::new(device), memory, communicators })
    }

    fn abort(&self, rank: Rank, description: &str) {
        self.ends[rank.0].abort(AbortCause { rank, description: description.into() });
    }

    fn failure(&self) -> Option<(Rank, String)> {
        let cause = self.ends.first()?.failure()?;
        Some((cause.rank, cause.description))
    }
}
