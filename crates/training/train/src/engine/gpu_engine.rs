//! Ranks on GPUs: threads of this process, each with a device on the GPU that its number on the host names. Other
//! processes may have other ranks of the mesh, and other ranks of the same GPU.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use comm::HostCommunicator;
use config::Products;
use cuda::CudaDevice;
use device::{ArenaSize, Communicator, DeviceError, Numerics, Stream};
use gpu::Gpu;
use gpu_rank::{
    EventKeeper, MAX_MEMBERS, NcclCommunicator, NcclGroup, NcclGroups, NcclRank, Neighbours, PeerCommunicator,
    PeerLanes, QueueOrder, RankDevice, RankStreams, StagedCommunicator, Staging, on_gpu,
};
use mesh::{Group, Rank};
use nvidia::nccl;
use program::PeerGroup;
use sync::lock;

use crate::engine::attention_source::RankAttention;
use crate::engine::description::accepted_products;
use crate::engine::gpus::{BlocksBy, Gpus};
use crate::engine::kernel_choice::ProductChoice;
use crate::engine::thread_engine::{GroupTransports, ThreadEngine, channels};
use crate::engine::{Engine, EngineDescription, RankEngine};

/// Opens ranks on GPUs.
pub struct GpuEngine {
    /// The ranks' threads, streams and transports.
    threads: ThreadEngine,
    gpus: Arc<Gpus>,
    /// The GPU of each rank of this process, as an index of [`Gpus::facts`].
    gpu_of: BTreeMap<usize, usize>,
    order: QueueOrder,
    /// Joins groups of ranks with a GPU each.
    nccl: Option<Arc<nccl::Library>>,
    /// Memory and events of ranks, which others use: they exist as long as the engine.
    opened: Mutex<Vec<Opened>>,
}

/// Parts of a rank that exist as long as the engine.
struct Opened {
    // NCCL ends before the streams that it uses.
    _nccl: Option<Arc<NcclRank>>,
    _events: Arc<EventKeeper>,
    _device: Arc<CudaDevice>,
}

impl GpuEngine {
    /// An engine for the ranks of `threads`, which communicate while they compute where those have streams with
    /// threads. `host` are all ranks of this host, in order.
    pub fn new(threads: ThreadEngine, host: &[Rank], gpus: Arc<Gpus>) -> GpuEngine {
        let of_host = host.iter().enumerate().map(|(local, rank)| (rank.0, gpus.of_rank(local)));
        let own = threads.ranks();
        let gpu_of = of_host.filter(|(rank, _)| own.contains(&Rank(*rank))).collect();
        let order = if threads.has_queues() { QueueOrder::PerStream } else { QueueOrder::One };
        GpuEngine { threads, gpus, gpu_of, order, nccl: None, opened: Mutex::default() }
    }

    /// The same engine, whose groups of several ranks are joined by NCCL, and whose streams run in `order` without
    /// threads. Each rank of the world has a process and a GPU of its own, and all processes give the same.
    #[must_use]
    pub fn with_nccl(self, library: Arc<nccl::Library>, order: QueueOrder) -> GpuEngine {
        GpuEngine { nccl: Some(library), order, ..self }
    }

    /// The GPU of a rank of this process.
    ///
    /// # Errors
    /// A rank of another process.
    fn gpu_of(&self, rank: Rank) -> Result<usize, DeviceError> {
        let found = self.gpu_of.get(&rank.0).copied();
        found.ok_or_else(|| DeviceError::Communication(format!("{rank} must be a rank of this process").into()))
    }

    /// Meets the other ranks of all groups over NCCL, where the run uses it: before the rank's memory is allocated.
    fn meet(&self, rank: Rank, gpu: &Arc<dyn Gpu>) -> Result<Option<NcclGroups>, DeviceError> {
        let Some(library) = &self.nccl else { return Ok(None) };
        let of_group = |(which, group): (PeerGroup, Group)| NcclGroup {
            group,
            channels: channels(which),
            neighbours: if which == PeerGroup::PIPELINE { Neighbours::Send } else { Neighbours::None },
        };
        let groups: Vec<NcclGroup> = self.threads.peers(rank).map(of_group).filter(is_joined).collect();
        NcclGroups::meet(library, gpu, self.threads.supervised(rank)?, &groups).map(Some)
    }

    /// Whether all members of `group` are in this process and on the GPU `index`.
    fn share_gpu(&self, group: &Group, index: usize) -> bool {
        let is_here = |rank: &Rank| self.gpu_of.get(&rank.0) == Some(&index);
        group.size() <= MAX_MEMBERS && group.members().iter().all(is_here)
    }
}

/// Whether NCCL joins a group: the host carries the bytes of larger ones.
fn is_joined(known: &NcclGroup) -> bool {
    known.group.size() <= MAX_MEMBERS
}

impl Engine for GpuEngine {
    fn open(&self, rank: Rank, size: ArenaSize, numerics: Numerics) -> Result<RankEngine, DeviceError> {
        numerics.accepted_by(self.gpus.kind(), cuda::accepts)?;
        let index = self.gpu_of(rank)?;
        let open = self.gpus.open(index)?;
        cuda::check_products(numerics.products, open.gpu.facts().capability)?;
        let met = self.meet(rank, &open.gpu).map_err(|error| on_gpu(open.gpu.facts(), error))?;
        let device = CudaDevice::open(Arc::clone(&open.gpu), &open.code.operations, size);
        let device = device.map_err(|error| on_gpu(open.gpu.facts(), error))?;
        let device = match numerics.products {
            Products::Device => {
                let library = self.gpus.product_library(index, &open.gpu)?;
                let device = device
                    .with_library(library, self.gpus.choice(index).algorithms)
                    .map_err(|error| on_gpu(open.gpu.facts(), error))?;
                match self.gpus.attention_library(index, &open.gpu)? {
                    Some(RankAttention { library, workspace_bytes }) => device
                        .with_attention(library, workspace_bytes)
                        .map_err(|error| on_gpu(open.gpu.facts(), error))?,
                    None => device,
                }
            }
            Products::Blocks16 if self.gpus.blocks() == BlocksBy::KernelsOrLibrary => {
                let ProductChoice { algorithms, tiles } = self.gpus.choice(index);
                let library = self.gpus.product_library(index, &open.gpu)?;
                device
                    .with_tiles(tiles)
                    .with_equal_algorithms(library, algorithms)
                    .map_err(|error| on_gpu(open.gpu.facts(), error))?
            }
            Products::Chained | Products::Pairs | Products::Blocks16 | Products::Blocks8 => {
                device.with_products(numerics.products).with_tiles(self.gpus.choice(index).tiles)
            }
        };
        let device = Arc::new(device.with_graphs(self.gpus.graphs()));
        let events = Arc::new(EventKeeper::new(Arc::clone(&open.gpu)));
        let queues = self.threads.queues(rank)?;
        let streams = RankStreams { device: Arc::clone(&device), order: self.order };
        let nccl = met.map(|met| Arc::new(NcclRank::new(met, streams.clone(), Arc::clone(&open.collectives))));
        let (_nccl, _events, _device) = (nccl.clone(), Arc::clone(&events), Arc::clone(&device));
        lock(&self.opened).push(Opened { _nccl, _events, _device });
        // Only where some group needs it.
        let staging: OnceLock<Arc<Staging>> = OnceLock::new();
        let staging = || match staging.get() {
            Some(known) => Ok(Arc::clone(known)),
            None => {
                let made = Arc::new(Staging::new(streams.clone())?);
                Ok::<_, DeviceError>(Arc::clone(staging.get_or_init(|| made)))
            }
        };
        let communicators = self.threads.groups(rank, |member, group| {
            let GroupTransports { transports, hosts, channels } = member;
            let opened: Box<dyn Communicator> = if self.share_gpu(&group, index) {
                let (queues, kernels) = (Arc::clone(&queues), Arc::clone(&open.collectives));
                let (streams, events) = (streams.clone(), Arc::clone(&events));
                let lanes = PeerLanes { transports, channels, queues, streams, kernels, events };
                Box::new(PeerCommunicator::new(group, lanes))
            } else if let Some(rank) = nccl.clone().filter(|_| group.size() <= MAX_MEMBERS) {
                let transport = &transports[Stream::Compute.index()];
                Box::new(NcclCommunicator::new(group, (transport, channels), rank))
            } else {
                let staging = staging()?;
                let of_library = |stream| self.threads.library_group(stream, &group);
                let (own, mirror) = (group.clone(), staging.mirror());
                let host = HostCommunicator::new(transports, own, hosts, channels, mirror, Arc::default(), &of_library);
                Box::new(StagedCommunicator::new(host, staging, Arc::clone(&queues)))
            };
            Ok(opened)
        })?;
        let memory = Box::new(device.reader()?);
        let device = RankDevice::new(streams, queues);
        let device = match nccl {
            Some(nccl) => device.with_nccl(nccl),
            None => device,
        };
        Ok(RankEngine { device: Box::new(device), memory, communicators })
    }

    fn ranks(&self) -> Vec<Rank> {
        self.threads.ranks()
    }

    fn describe(&self) -> EngineDescription {
        EngineDescription::of_gpu_ranks(self.gpus.kind())
    }

    fn abort(&self, rank: Rank, description: &str) {
        self.threads.abort(rank, description);
    }

    fn failure(&self) -> Option<(Rank, String)> {
        self.threads.failure()
    }
}

impl EngineDescription {
    /// Ranks on GPUs of this kind, as [`GpuEngine`] opens them.
    pub(crate) fn of_gpu_ranks(device: device::DeviceKind) -> EngineDescription {
        EngineDescription {
            device,
            instruction_sets: vec![],
            products: accepted_products(cuda::accepts),
            threads_per_rank: 1,
        }
    }
}
