//! What a rank runs on: its device and its communicators. The executor sees only these traits.

pub mod meta_engine;
pub mod thread_engine;

use config::Products;
use device::{Communicator, Device, DeviceError, MemoryReader};
use mesh::Rank;

/// One communicator for each group that a rank belongs to.
pub struct Communicators {
    /// Ranks that share every matrix.
    pub tensor: Box<dyn Communicator>,
    /// Ranks that see different sequences and among which ZeRO shards what would be the same on all: all of dp, or one
    /// sharding group of it.
    pub data: Box<dyn Communicator>,
    /// Ranks that hold the same shards in other sharding groups; a group of one where all of dp is one.
    pub replicas: Box<dyn Communicator>,
    /// Ranks that hold the other stages of this model replica, in pipeline order.
    pub pipeline: Box<dyn Communicator>,
    /// First and last stage of this replica where a tied table is on both; a group of one elsewhere.
    pub tied: Box<dyn Communicator>,
    /// All ranks.
    pub world: Box<dyn Communicator>,
}

/// One rank's end of an engine.
pub struct RankEngine {
    /// Executes operations in the rank's arena.
    pub device: Box<dyn Device>,
    /// Reads the same arena for storage, on a thread of its own.
    pub memory: Box<dyn MemoryReader>,
    /// Joins tensors with other ranks.
    pub communicators: Communicators,
}

/// Opens ranks. Faults are tested by wrapping an engine, never by a switch in it.
pub trait Engine: Sync {
    /// The device, with an arena of `arena_bytes` and products in this order, and the communicators of `rank`. Called once per rank, on the
    /// rank's own thread.
    fn open(&self, rank: Rank, arena_bytes: usize, products: Products) -> Result<RankEngine, DeviceError>;

    /// Tells every rank that the run has failed, so that none waits in vain.
    fn abort(&self, rank: Rank, description: &str);

    /// The rank that failed first, and why, if one did.
    fn failure(&self) -> Option<(Rank, String)>;
}
