//! Ranks that compute and send nothing: the very same programs, recorded.
//!
//! What a run of one step records here is what it costs anywhere: operations and their multiply-adds, bytes that
//! leave each rank, the arena that the operations need. No rank waits for another, so any subset of them can be run
//! ([`crate::run_ranks`]): one per pipeline coordinate stands for its data- and tensor-parallel peers.

use std::collections::BTreeMap;
use std::sync::Arc;

use comm::collectives::Traffic;
use comm::{MetaCommunicator, Operation};
use config::Products;
use device::{DeviceError, MetaDevice, Record};
use mesh::{AxisSet, Group, Mesh, Rank};
use program::Peers;

use crate::engine::{Communicators, Engine, RankEngine};

/// Opens ranks on [`MetaDevice`]s and [`MetaCommunicator`]s.
pub struct MetaEngine {
    ranks: Vec<MetaRank>,
}

struct MetaRank {
    device: Arc<MetaDevice>,
    communicators: MetaCommunicators,
}

/// In the order of [`Communicators`].
struct MetaCommunicators {
    tensor: Arc<MetaCommunicator>,
    data: Arc<MetaCommunicator>,
    replicas: Arc<MetaCommunicator>,
    pipeline: Arc<MetaCommunicator>,
    tied: Arc<MetaCommunicator>,
    world: Arc<MetaCommunicator>,
}

impl MetaCommunicators {
    fn of(mesh: &Mesh, rank: Rank) -> MetaCommunicators {
        let open = |group: Group| Arc::new(MetaCommunicator::new(group.size(), group.position()));
        let Peers { tensor, data, replicas, pipeline, ends } = Peers::of(mesh, rank);
        MetaCommunicators {
            tensor: open(tensor),
            data: open(data),
            replicas: open(replicas),
            pipeline: open(pipeline),
            tied: open(ends),
            world: open(mesh.group(rank, AxisSet::ALL)),
        }
    }

    fn each(&self) -> [&Arc<MetaCommunicator>; 6] {
        [&self.tensor, &self.data, &self.replicas, &self.pipeline, &self.tied, &self.world]
    }
}

/// What one rank was asked since the last look.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankRecord {
    /// Operations, and the arena that they and the groups' calls need.
    pub operations: Record,
    /// What left the rank, by operation.
    pub sent: BTreeMap<Operation, Traffic>,
}

impl RankRecord {
    /// Bytes that left the rank.
    pub fn sent_bytes(&self) -> u64 {
        self.sent.values().map(|sent| sent.bytes).sum()
    }
}

impl MetaEngine {
    /// An engine for the ranks of `mesh`.
    pub fn new(mesh: &Mesh) -> MetaEngine {
        let rank = |rank| MetaRank { device: Arc::default(), communicators: MetaCommunicators::of(mesh, rank) };
        MetaEngine { ranks: mesh.ranks().map(rank).collect() }
    }

    /// Everything that `rank` was asked since the last call.
    pub fn take_record(&self, rank: Rank) -> RankRecord {
        let MetaRank { device, communicators } = &self.ranks[rank.0];
        let mut sent: BTreeMap<Operation, Traffic> = BTreeMap::new();
        for (operation, traffic) in communicators.each().into_iter().flat_map(|group| group.take_sent()) {
            let sum = sent.entry(operation).or_default();
            *sum = *sum + traffic;
        }
        let mut operations = device.take_record();
        let of_groups = communicators.each().into_iter().map(|group| group.take_peak_bytes());
        operations.peak_bytes = of_groups.fold(operations.peak_bytes, usize::max);
        RankRecord { operations, sent }
    }
}

impl Engine for MetaEngine {
    /// There is no arena: a rank of any size fits.
    fn open(&self, rank: Rank, _arena_bytes: usize, _products: Products) -> Result<RankEngine, DeviceError> {
        let MetaRank { device, communicators } = &self.ranks[rank.0];
        Ok(RankEngine {
            device: Box::new(Arc::clone(device)),
            memory: Box::new(Arc::clone(device)),
            communicators: Communicators {
                tensor: Box::new(Arc::clone(&communicators.tensor)),
                data: Box::new(Arc::clone(&communicators.data)),
                replicas: Box::new(Arc::clone(&communicators.replicas)),
                pipeline: Box::new(Arc::clone(&communicators.pipeline)),
                tied: Box::new(Arc::clone(&communicators.tied)),
                world: Box::new(Arc::clone(&communicators.world)),
            },
        })
    }

    /// Nobody waits, so nobody need be told.
    fn abort(&self, _rank: Rank, _description: &str) {}

    fn failure(&self) -> Option<(Rank, String)> {
        None
    }
}
