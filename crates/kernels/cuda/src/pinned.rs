//! Pinned memory for copies to the GPU: a ring whose bytes are free again when the copies out of them have ended.

use std::collections::VecDeque;
use std::sync::Arc;

use gpu::{DevicePointer, DriverError, EventHandle, Gpu, PinnedHandle, StreamHandle};

use crate::owned::{Owned, allocate_pinned, create_event};

/// Bytes of the ring: the tokens of many microbatches.
pub(crate) const RING_BYTES: usize = 8 << 20;
/// Places in the ring are multiples of this many bytes.
const ALIGN_BYTES: usize = 64;

/// A copy that may not have ended.
struct Copy {
    /// The count of bytes of the ring up to its end.
    end: u64,
    stream: StreamHandle,
    reached: Owned<EventHandle>,
}

/// See the top of the file.
pub(crate) struct PinnedRing {
    pinned: Owned<PinnedHandle>,
    capacity: usize,
    /// Bytes ever handed out, skipped ones too; the next place is this modulo the capacity.
    handed_out: u64,
    /// Bytes ever taken back.
    taken_back: u64,
    copies: VecDeque<Copy>,
    spare_events: Vec<Owned<EventHandle>>,
}

impl PinnedRing {
    /// A ring of `capacity` bytes, a multiple of 128.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(gpu: &Arc<dyn Gpu>, capacity: usize) -> Result<PinnedRing, DriverError> {
        debug_assert!(capacity.is_multiple_of(2 * ALIGN_BYTES), "a ring of {capacity} bytes");
        let pinned = allocate_pinned(gpu, capacity)?;
        Ok(PinnedRing { pinned, capacity, handed_out: 0, taken_back: 0, copies: VecDeque::new(), spare_events: vec![] })
    }

    /// Copies `from` to `to` as work of `stream`; `from` may change at once. Waits where the ring is full of copies
    /// that have not ended.
    ///
    /// # Errors
    /// The driver's.
    pub fn upload(
        &mut self,
        gpu: &Arc<dyn Gpu>,
        stream: StreamHandle,
        to: DevicePointer,
        from: &[u8],
    ) -> Result<(), DriverError> {
        let mut to = to;
        for piece in from.chunks(self.capacity / 2) {
            let offset_bytes = self.place(gpu, piece.len())?;
            gpu.write_pinned(self.pinned.handle(), offset_bytes, piece)?;
            gpu.upload(stream, to, self.pinned.handle(), offset_bytes, piece.len())?;
            let reached = self.spare_events.pop().map_or_else(|| create_event(gpu), Ok)?;
            gpu.record(reached.handle(), stream)?;
            self.copies.push_back(Copy { end: self.handed_out, stream, reached });
            to = to.offset(piece.len());
        }
        Ok(())
    }

    /// The first of `bytes` free bytes, at most half of the ring.
    fn place(&mut self, gpu: &Arc<dyn Gpu>, bytes: usize) -> Result<usize, DriverError> {
        let capacity = self.capacity as u64;
        let bytes = bytes.next_multiple_of(ALIGN_BYTES) as u64;
        let left = capacity - self.handed_out % capacity;
        // A place does not go around the end of the ring.
        let first = if bytes <= left { self.handed_out } else { self.handed_out + left };
        let end = first + bytes;
        while end - self.taken_back > capacity {
            let Some(copy) = self.copies.pop_front() else {
                self.taken_back = first;
                break;
            };
            if !gpu.is_reached(copy.reached.handle())? {
                gpu.synchronize(copy.stream)?;
            }
            self.taken_back = copy.end;
            self.spare_events.push(copy.reached);
        }
        self.handed_out = end;
        Ok((first % capacity) as usize)
    }
}
