//! Copies between the GPU and plain memory of the host. The GPU copies to and from pinned memory of its own; the plain
//! memory is read when the copy is submitted, and written when a call tells that the copy has ended.

use std::ffi::c_void;

use gpu::{DevicePointer, DriverError, EventHandle, Gpu, PinnedHandle, StreamHandle};

use crate::memory::enter;
use crate::process::{Process, entered};
use crate::status::{INVALID_VALUE, NOT_SUPPORTED, Status, of};

/// Copies that have not ended.
#[derive(Debug, Default)]
pub struct HostCopies(Vec<HostCopy>);

#[derive(Debug)]
struct HostCopy {
    event: EventHandle,
    pinned: PinnedHandle,
    to: Option<HostRange>,
}

/// Plain memory of the host that its owner keeps until the copy has ended.
#[derive(Clone, Copy, Debug)]
struct HostRange {
    address: *mut u8,
    bytes: usize,
}

// SAFETY: the memory belongs to no thread; by the driver's interface its owner neither frees nor uses it meanwhile.
unsafe impl Send for HostRange {}

impl Process {
    /// Ends copies whose event is reached.
    ///
    /// # Errors
    /// A failure of any work.
    pub fn end_copies(&self) -> Result<(), DriverError> {
        let mut copies = sync::lock(&self.copies);
        let mut open = Vec::new();
        for copy in copies.0.drain(..) {
            if !self.gpu.is_reached(copy.event)? {
                open.push(copy);
                continue;
            }
            if let Some(HostRange { address, bytes }) = copy.to {
                // SAFETY: the owner keeps the memory, and does not use it, until the copy has ended.
                let to = unsafe { std::slice::from_raw_parts_mut(address, bytes) };
                self.gpu.read_pinned(copy.pinned, 0, to)?;
            }
            self.gpu.free_pinned(copy.pinned)?;
            self.gpu.destroy_event(copy.event)?;
        }
        copies.0 = open;
        Ok(())
    }

    fn submit(
        &self,
        stream: StreamHandle,
        to: Option<HostRange>,
        pinned: PinnedHandle,
        copied: Result<(), DriverError>,
    ) -> Status {
        let recorded = copied.and_then(|()| self.gpu.create_event()).and_then(|event| {
            self.gpu.record(event, stream)?;
            sync::lock(&self.copies).0.push(HostCopy { event, pinned, to });
            Ok(())
        });
        of(recorded)
    }

    fn is_captured(&self, stream: StreamHandle) -> bool {
        sync::lock(&self.captured).contains(&stream)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: u64) -> Status {
    let process = enter!();
    let stream = StreamHandle(stream);
    if from.is_null() {
        return INVALID_VALUE;
    }
    if process.is_captured(stream) {
        return NOT_SUPPORTED;
    }
    // SAFETY: the interface asks for N bytes of the host.
    let from = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), bytes) };
    let pinned = process.gpu.allocate_pinned(bytes).and_then(|pinned| {
        process.gpu.write_pinned(pinned, 0, from)?;
        Ok(pinned)
    });
    match pinned {
        Ok(pinned) => {
            let copied = process.gpu.upload(stream, DevicePointer(to), pinned, 0, bytes);
            process.submit(stream, None, pinned, copied)
        }
        Err(error) => of(Err(error)),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: u64) -> Status {
    let process = enter!();
    let stream = StreamHandle(stream);
    if to.is_null() {
        return INVALID_VALUE;
    }
    if process.is_captured(stream) {
        return NOT_SUPPORTED;
    }
    match process.gpu.allocate_pinned(bytes) {
        Ok(pinned) => {
            let copied = process.gpu.download(stream, pinned, 0, DevicePointer(from), bytes);
            process.submit(stream, Some(HostRange { address: to.cast(), bytes }), pinned, copied)
        }
        Err(error) => of(Err(error)),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: u64) -> Status {
    of(enter!().gpu.copy(StreamHandle(stream), DevicePointer(to), DevicePointer(from), bytes))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD8Async(to: u64, value: u8, bytes: usize, stream: u64) -> Status {
    of(enter!().gpu.fill(StreamHandle(stream), DevicePointer(to), value, bytes))
}
