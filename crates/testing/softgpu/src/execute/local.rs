//! Local memory of a warp's threads.

use super::fault::{Fault, FaultKind};
use crate::checks::Check;
use crate::memory::marks::Marks;

/// Local memory of a warp's threads, one thread after the other.
#[derive(Debug)]
pub struct Local {
    bytes: Vec<u8>,
    is_written: Marks,
    bytes_per_thread: usize,
}

impl Local {
    /// Memory that nothing has written.
    pub fn new(bytes_per_thread: usize) -> Local {
        let bytes = bytes_per_thread * 32;
        Local { bytes: vec![0; bytes], is_written: Marks::new(bytes), bytes_per_thread }
    }

    fn offset(&self, address: u64, bytes: usize, lane: usize) -> Result<usize, Fault> {
        let size = self.bytes_per_thread;
        match usize::try_from(address) {
            Ok(offset) if offset.saturating_add(bytes) <= size => Ok(lane * size + offset),
            _ => Err(outside("local memory of a thread", address, bytes, size, lane)),
        }
    }

    /// The bytes that a lane reads.
    ///
    /// # Errors
    /// Bytes that it does not have; with the check, bytes that it has not written.
    pub fn read(&self, address: u64, bytes: usize, lane: usize, check: Check) -> Result<&[u8], Fault> {
        let offset = self.offset(address, bytes, lane)?;
        if check == Check::On && !self.is_written.are_all(offset, bytes) {
            let text = format!("{bytes} bytes of local memory at {address:#x} are read, but were never written");
            return Err(Fault::of_lane(FaultKind::Unwritten, lane, text));
        }
        Ok(&self.bytes[offset..offset + bytes])
    }

    /// Writes the bytes of a lane.
    ///
    /// # Errors
    /// Bytes that it does not have.
    pub fn write(&mut self, address: u64, from: &[u8], lane: usize) -> Result<(), Fault> {
        let offset = self.offset(address, from.len(), lane)?;
        self.is_written.set(offset, from.len());
        self.bytes[offset..offset + from.len()].copy_from_slice(from);
        Ok(())
    }
}

/// An access outside of a memory of `size` bytes.
pub fn outside(name: &str, address: u64, bytes: usize, size: usize, lane: usize) -> Fault {
    let text = format!("{bytes} bytes at {address:#x} are outside of {name}, which has {size} bytes");
    Fault::of_lane(FaultKind::Access, lane, text)
}
