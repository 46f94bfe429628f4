//! The ends of a worker outside of its tensors: device, groups, tokens and storage.

use device::{Device, MemoryReader};

use crate::engine::Communicators;
use crate::worker::batch::TokenSource;
use crate::worker::call_clock::CallClock;
use crate::worker::save_stream::SaveStream;

/// The device of a rank, its groups, and where tokens come from and state goes.
pub struct RankPorts<'a> {
    /// Executes operations.
    pub device: Box<dyn Device>,
    /// Joins tensors.
    pub communicators: Communicators,
    /// Measures calls of the groups.
    pub calls: CallClock,
    /// Where tokens come from.
    pub source: &'a dyn TokenSource,
    /// Reads this rank's memory for storage; `None` once the thread that reads has it.
    pub memory: Option<Box<dyn MemoryReader>>,
    /// Takes the state that `Save` instructions name.
    pub saving: Option<SaveStream>,
}
