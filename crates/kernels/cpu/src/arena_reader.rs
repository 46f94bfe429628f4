//! Reads a rank's arena next to its thread.

use std::sync::Arc;

use device::{Arena, DeviceError, MemoryReader, Tensor};

/// Reads tensors of an arena that a [`crate::CpuDevice`] computes in.
#[derive(Debug)]
pub struct ArenaReader {
    arena: Arc<Arena>,
}

impl ArenaReader {
    /// A reader of `arena`.
    pub fn new(arena: Arc<Arena>) -> ArenaReader {
        ArenaReader { arena }
    }
}

impl MemoryReader for ArenaReader {
    fn read(&self, from: Tensor, to: &mut [u8]) -> Result<(), DeviceError> {
        from.has_host_bytes("read", to.len())?;
        // SAFETY: whoever executes instructions does not write what is read here, as the trait says.
        to.copy_from_slice(unsafe { self.arena.bytes(from) }?);
        Ok(())
    }
}
