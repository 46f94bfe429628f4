//! Ranks that compute and send nothing: the very same programs, recorded.
//!
//! A run of one step records its costs, which are the same on every engine: operations and their multiply-adds, bytes
//! that leave each rank, the arena that the operations need. No rank waits for another, so any subset of them can be
//! run ([`crate::run_ranks`]): one per pipeline coordinate stands for its data- and tensor-parallel peers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use comm::collectives::Traffic;
use comm::{MetaCommunicator, Operation};
use config::Products;
use device::{ArenaSize, DeviceError, DeviceKind, MetaDevice, Numerics, Record};
use mesh::{Axis, AxisSet, Rank};
use program::{PeerGroup, PeerGroups};

use crate::engine::{Communicators, Engine, EngineDescription, RankEngine};

/// Opens ranks on [`MetaDevice`]s and [`MetaCommunicator`]s.
pub struct MetaEngine {
    groups: PeerGroups,
    ranks: Vec<MetaRank>,
}

#[derive(Default)]
struct MetaRank {
    device: Arc<MetaDevice>,
    /// Those that were opened.
    communicators: Mutex<Vec<Arc<MetaCommunicator>>>,
}

impl MetaRank {
    fn communicators(&self) -> MutexGuard<'_, Vec<Arc<MetaCommunicator>>> {
        self.communicators.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Calls of one rank since the last look.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankRecord {
    /// Operations, and the arena that they and the groups' calls need.
    pub operations: Record,
    /// Traffic of the rank, by operation.
    pub sent: BTreeMap<Operation, Traffic>,
}

impl RankRecord {
    /// Bytes that left the rank.
    pub fn sent_bytes(&self) -> u64 {
        self.sent.values().map(|sent| sent.bytes).sum()
    }
}

impl MetaEngine {
    /// An engine for ranks with these groups.
    pub fn new(groups: PeerGroups) -> MetaEngine {
        MetaEngine { ranks: groups.mesh().ranks().map(|_| MetaRank::default()).collect(), groups }
    }

    /// Everything that `rank` was asked since the last call.
    pub fn take_record(&self, rank: Rank) -> RankRecord {
        let (device, communicators) = (&self.ranks[rank.0].device, self.ranks[rank.0].communicators());
        let mut sent: BTreeMap<Operation, Traffic> = BTreeMap::new();
        for (operation, traffic) in communicators.iter().flat_map(|group| group.take_sent()) {
            let sum = sent.entry(operation).or_default();
            *sum = *sum + traffic;
        }
        let mut operations = device.take_record();
        let of_groups = communicators.iter().map(|group| group.take_peak_bytes());
        operations.peak_bytes = of_groups.fold(operations.peak_bytes, usize::max);
        RankRecord { operations, sent }
    }
}

impl Engine for MetaEngine {
    /// There is no arena and no arithmetic: a rank of any size and any numerics fits.
    fn open(&self, rank: Rank, _size: ArenaSize, _numerics: Numerics) -> Result<RankEngine, DeviceError> {
        let MetaRank { device, .. } = &self.ranks[rank.0];
        let mut opened = vec![];
        let communicators = Communicators::open(&self.groups, rank, |which, group| {
            let communicator = Arc::new(MetaCommunicator::new(axes(which), group.size(), group.position()));
            opened.push(Arc::clone(&communicator));
            Ok(Box::new(communicator))
        });
        self.ranks[rank.0].communicators().append(&mut opened);
        Ok(RankEngine {
            device: Box::new(Arc::clone(device)),
            memory: Box::new(Arc::clone(device)),
            communicators: communicators?,
        })
    }

    fn ranks(&self) -> Vec<Rank> {
        self.groups.mesh().ranks().collect()
    }

    fn describe(&self) -> EngineDescription {
        EngineDescription {
            device: DeviceKind::RECORDER,
            instruction_sets: vec![],
            products: Products::ALL.to_vec(),
            threads_per_rank: 1,
        }
    }

    /// Nobody waits, so nobody needs the report.
    fn abort(&self, _rank: Rank, _description: &str) {}

    fn failure(&self) -> Option<(Rank, String)> {
        None
    }
}

/// The axes along which the members of a group differ.
fn axes(which: PeerGroup) -> AxisSet {
    match which {
        PeerGroup::Along(axes) => axes,
        PeerGroup::Ends => Axis::Pp.into(),
    }
}
