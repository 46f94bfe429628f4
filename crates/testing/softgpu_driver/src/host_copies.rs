//! Copies between the GPU and plain memory of the host. The GPU copies to and from pinned memory of its own; the plain
//! memory is read when the copy is submitted, and written when a call tells that the copy has ended. Copies that are
//! captured read and write it when the graph runs.

use std::ffi::c_void;

use gpu::{DevicePointer, DriverError, Gpu, PinnedHandle, StreamHandle};
use softgpu::{HostWork, Promise};

use crate::context::{Context, entered};
use crate::memory::enter;
use crate::status::{INVALID_VALUE, SUCCESS, Status, of};

/// Copies that have not ended.
#[derive(Debug, Default)]
pub struct HostCopies(Vec<HostCopy>);

#[derive(Debug)]
struct HostCopy {
    /// Its end.
    end: Promise,
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
// SAFETY: as above; a copy of a graph runs while the GPU holds its lock, so none runs twice at once.
unsafe impl Sync for HostRange {}

impl HostRange {
    fn read(self) -> Vec<u8> {
        // SAFETY: the owner keeps the memory as long as the graph may run.
        unsafe { std::slice::from_raw_parts(self.address, self.bytes) }.to_vec()
    }

    fn write(self, bytes: &[u8]) {
        // SAFETY: the owner keeps the memory, and does not use it while the graph runs.
        unsafe { std::slice::from_raw_parts_mut(self.address, self.bytes) }.copy_from_slice(bytes);
    }
}

impl Context {
    /// Ends copies that the GPU has made. The caller has not waited: a later call has no order with these copies.
    ///
    /// # Errors
    /// A failure of any work.
    pub fn end_copies(&self) -> Result<(), DriverError> {
        let mut copies = sync::lock(&self.copies);
        let mut open = Vec::new();
        for copy in copies.0.drain(..) {
            if !self.gpu.has_come(copy.end)? {
                open.push(copy);
                continue;
            }
            if let Some(to) = copy.to {
                let mut bytes = vec![0; to.bytes];
                self.gpu.read_pinned(copy.pinned, 0, &mut bytes)?;
                to.write(&bytes);
            }
            self.gpu.free_pinned(copy.pinned)?;
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
        let submitted = copied.and_then(|()| self.gpu.promise()).and_then(|end| {
            self.gpu.keep_promise(end, stream)?;
            sync::lock(&self.copies).0.push(HostCopy { end, pinned, to });
            Ok(())
        });
        of(submitted)
    }

    fn is_captured(&self, stream: StreamHandle) -> bool {
        sync::lock(&self.captured).contains(&stream)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: u64) -> Status {
    let context = enter!();
    let stream = StreamHandle(stream);
    if from.is_null() {
        return INVALID_VALUE;
    }
    if context.is_captured(stream) {
        let host = HostRange { address: from.cast::<u8>().cast_mut(), bytes };
        let work = HostWork {
            call: "cuMemcpyHtoDAsync",
            reads: vec![],
            writes: vec![(DevicePointer(to), bytes)],
            compute: Box::new(move |_| vec![host.read()]),
        };
        return of(context.gpu.submit_host_work(stream, work));
    }
    // SAFETY: the interface asks for N bytes of the host.
    let from = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), bytes) };
    let pinned = context.gpu.allocate_pinned(bytes).and_then(|pinned| {
        context.gpu.write_pinned(pinned, 0, from)?;
        Ok(pinned)
    });
    match pinned {
        Ok(pinned) => {
            let copied = context.gpu.upload(stream, DevicePointer(to), pinned, 0, bytes);
            context.submit(stream, None, pinned, copied)
        }
        Err(error) => of(Err(error)),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: u64) -> Status {
    let context = enter!();
    let stream = StreamHandle(stream);
    if to.is_null() {
        return INVALID_VALUE;
    }
    if context.is_captured(stream) {
        let host = HostRange { address: to.cast(), bytes };
        let work = HostWork {
            call: "cuMemcpyDtoHAsync",
            reads: vec![(DevicePointer(from), bytes)],
            writes: vec![],
            compute: Box::new(move |read| {
                read.iter().for_each(|bytes| host.write(bytes));
                vec![]
            }),
        };
        return of(context.gpu.submit_host_work(stream, work));
    }
    match context.gpu.allocate_pinned(bytes) {
        Ok(pinned) => {
            let copied = context.gpu.download(stream, pinned, 0, DevicePointer(from), bytes);
            context.submit(stream, Some(HostRange { address: to.cast(), bytes }), pinned, copied)
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
    let context = enter!();
    // New memory is zeros, and a large workspace costs no memory of the host while nobody writes it.
    if sync::lock(&context.zeros).remove(&to) == Some(bytes) && value == 0 {
        return SUCCESS;
    }
    of(context.gpu.fill(StreamHandle(stream), DevicePointer(to), value, bytes))
}
