//! The engine of a rank: its device and its communicators. The executor sees only these traits.

pub mod attention_source;
pub(crate) mod carried_kernels;
pub mod communicators;
pub mod description;
pub mod gpu_code;
pub mod gpu_engine;
pub mod gpu_error;
pub mod gpu_memory;
pub mod gpus;
pub mod kernel_archive;
pub mod kernel_choice;
pub mod meta_engine;
pub mod open_engine;
pub mod processor;
pub mod product_source;
pub mod run_device;
pub mod thread_engine;

use device::{ArenaSize, Device, DeviceError, MemoryReader, Numerics};
use mesh::Rank;

pub use communicators::{Communicators, MissingGroup};
pub use description::EngineDescription;

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
    /// The device, with an arena of `size`, and the communicators of `rank`. Called once per rank, on the rank's
    /// own thread.
    ///
    /// # Errors
    /// [`DeviceError::Refused`] for a choice in `numerics` that the device does not have; an arena or threads that the
    /// system does not give.
    fn open(&self, rank: Rank, size: ArenaSize, numerics: Numerics) -> Result<RankEngine, DeviceError>;

    /// The ranks of this process, ascending.
    fn ranks(&self) -> Vec<Rank>;

    /// Facts of the devices, known before a rank is opened.
    fn describe(&self) -> EngineDescription;

    /// Tells every rank that the run has failed, so that none waits in vain.
    fn abort(&self, rank: Rank, description: &str);

    /// The rank that failed first, and why, if one did.
    fn failure(&self) -> Option<(Rank, String)>;
}
