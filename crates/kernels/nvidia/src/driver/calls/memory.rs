//! Memory of a GPU, and pinned memory of the host.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};

use gpu::{DriverError, DriverErrorKind, FreeMemory};

use super::super::constants::{FABRIC_HANDLES, MINIMUM, ON_DEVICE, PINNED, PORTABLE, READ_WRITE};
use super::super::functions::Device;
use super::super::status::{NOT_PERMITTED, NOT_SUPPORTED};
use super::super::structs::{AccessDescription, AllocationProperties, Location};
use super::entry::Api;

/// Addresses that are backed with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::driver) struct Range {
    /// The first address.
    pub(in crate::driver) address: u64,
    /// Its size, a multiple of the granularity.
    pub(in crate::driver) bytes: usize,
}

/// Pinned memory of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::driver) struct Pinned {
    address: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory belongs to no thread; see `Pinned::write` and `Pinned::read` for its use.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

/// Who can be given access to memory: what a library registers must have been created for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::driver) struct Sharing {
    /// The kinds of handles by which others map it.
    pub(in crate::driver) handle_types: u32,
    /// 1 where network cards may read and write it, else 0.
    pub(in crate::driver) gpu_direct: u8,
}

fn properties(device: Device, sharing: Sharing) -> AllocationProperties {
    AllocationProperties {
        kind: PINNED,
        handle_types: sharing.handle_types,
        location: Location { kind: ON_DEVICE, id: device.0 },
        windows: null_mut(),
        compression: 0,
        gpu_direct: sharing.gpu_direct,
        usage: 0,
        reserved: [0; 4],
    }
}

impl Api {
    /// Memory of the current GPU.
    pub(in crate::driver) fn free_memory(&self) -> Result<FreeMemory, DriverError> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the call writes two sizes.
        self.checked("cuMemGetInfo", unsafe { (self.memory.info)(&mut free, &mut total) })?;
        Ok(FreeMemory { free_bytes: free as u64, total_bytes: total as u64 })
    }

    /// The unit of sizes and addresses of memory.
    pub(in crate::driver) fn granularity(&self, device: Device, sharing: Sharing) -> Result<usize, DriverError> {
        let mut bytes = 0;
        // SAFETY: the call reads the properties and writes one size.
        let status = unsafe { (self.memory.granularity)(&mut bytes, &properties(device, sharing), MINIMUM) };
        self.checked("cuMemGetAllocationGranularity", status)?;
        if bytes.is_power_of_two() {
            return Ok(bytes);
        }
        let text = format!("the granularity of memory is {bytes} bytes, not a power of two");
        Err(DriverError { call: "cuMemGetAllocationGranularity", kind: DriverErrorKind::Unavailable, text })
    }

    /// Reserves addresses at a multiple of `alignment`, and backs them. `bytes` is a multiple of the granularity.
    pub(in crate::driver) fn map(
        &self,
        (device, sharing): (Device, Sharing),
        bytes: usize,
        alignment: usize,
    ) -> Result<Range, DriverError> {
        let mut address = 0;
        // SAFETY: the call writes one address.
        let status = unsafe { (self.memory.reserve)(&mut address, bytes, alignment, 0, 0) };
        self.checked("cuMemAddressReserve", status)?;
        let range = Range { address, bytes };
        let mapped = self.back((device, sharing), range);
        if mapped.is_err() {
            // SAFETY: the range was reserved above and is not mapped. The first error is the one that counts.
            unsafe { (self.memory.free_addresses)(address, bytes) };
        }
        mapped.map(|()| range)
    }

    /// Creates memory, without handles of a fabric where this process may not use one.
    fn create(&self, device: Device, sharing: Sharing, bytes: usize) -> Result<u64, DriverError> {
        let mut memory = 0;
        // SAFETY: the call reads the properties and writes one handle.
        let status = unsafe { (self.memory.create)(&mut memory, bytes, &properties(device, sharing), 0) };
        let without_fabric = Sharing { handle_types: sharing.handle_types & !FABRIC_HANDLES, ..sharing };
        if without_fabric != sharing && [NOT_PERMITTED, NOT_SUPPORTED].contains(&status) {
            return self.create(device, without_fabric, bytes);
        }
        self.checked("cuMemCreate", status).map(|()| memory)
    }

    fn back(&self, (device, sharing): (Device, Sharing), Range { address, bytes }: Range) -> Result<(), DriverError> {
        let memory = self.create(device, sharing, bytes)?;
        // SAFETY: addresses and memory have this size, and both were made above.
        let status = unsafe { (self.memory.map)(address, bytes, 0, memory, 0) };
        let mapped = self.checked("cuMemMap", status);
        // SAFETY: the handle is used no more; a mapping keeps the memory.
        let status = unsafe { (self.memory.release)(memory) };
        let released = self.checked("cuMemRelease", status);
        mapped?;
        let access = AccessDescription { location: Location { kind: ON_DEVICE, id: device.0 }, flags: READ_WRITE };
        // SAFETY: the range is mapped; the call reads one description.
        let status = unsafe { (self.memory.set_access)(address, bytes, &access, 1) };
        let permitted = released.and_then(|()| self.checked("cuMemSetAccess", status));
        if permitted.is_err() {
            // SAFETY: the range was mapped above and nothing has used it.
            unsafe { (self.memory.unmap)(address, bytes) };
        }
        permitted
    }

    /// Frees memory and its addresses.
    pub(in crate::driver) fn unmap(&self, range: Range) -> Result<(), DriverError> {
        // SAFETY: the range was mapped whole, its owner gives it up, and its work has ended by the contract of
        // `Gpu::free`.
        self.checked("cuMemUnmap", unsafe { (self.memory.unmap)(range.address, range.bytes) })?;
        // SAFETY: as above; it is no longer mapped.
        self.checked("cuMemAddressFree", unsafe { (self.memory.free_addresses)(range.address, range.bytes) })
    }

    /// Allocates pinned memory, all zeros.
    pub(in crate::driver) fn allocate_pinned(&self, bytes: usize) -> Result<Pinned, DriverError> {
        let mut address: *mut c_void = null_mut();
        // SAFETY: the call writes one address.
        let status = unsafe { (self.memory.allocate_host)(&mut address, bytes, PORTABLE) };
        self.checked("cuMemHostAlloc", status)?;
        let Some(address) = NonNull::new(address.cast::<u8>()) else {
            let text = format!("{bytes} bytes of pinned memory have no address");
            return Err(DriverError { call: "cuMemHostAlloc", kind: DriverErrorKind::OutOfMemory, text });
        };
        // SAFETY: the memory has this size and nobody else knows it; from here on all of its bytes are initialised.
        unsafe { address.as_ptr().write_bytes(0, bytes) };
        Ok(Pinned { address, bytes })
    }

    /// Frees pinned memory.
    pub(in crate::driver) fn free_pinned(&self, pinned: Pinned) -> Result<(), DriverError> {
        // SAFETY: it was allocated by this driver, and its owner gives it up.
        self.checked("cuMemFreeHost", unsafe { (self.memory.free_host)(pinned.address.as_ptr().cast()) })
    }
}

impl Pinned {
    /// Its size.
    pub(in crate::driver) fn bytes(self) -> usize {
        self.bytes
    }

    /// Its first address, as a number.
    pub(in crate::driver) fn number(self) -> u64 {
        self.address.as_ptr() as u64
    }

    /// The address of a place within it.
    ///
    /// # Panics
    /// A range outside of it; the caller has checked.
    pub(super) fn place(self, offset: usize, bytes: usize) -> *mut u8 {
        let end = offset.checked_add(bytes);
        assert!(end.is_some_and(|end| end <= self.bytes), "{offset} + {bytes} is within {} bytes", self.bytes);
        // SAFETY: the offset is within the allocation.
        unsafe { self.address.as_ptr().add(offset) }
    }

    /// Copies into it. One thread at a time writes or reads by the lock of its owner; copies of a GPU that use the same
    /// bytes have ended by the contract of `Gpu::write_pinned`.
    pub(in crate::driver) fn write(self, offset: usize, from: &[u8]) {
        // SAFETY: the place has that many bytes, and a slice of the program does not overlap with memory of the driver.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.place(offset, from.len()), from.len()) };
    }

    /// Copies out of it; see [`Pinned::write`].
    pub(in crate::driver) fn read(self, offset: usize, to: &mut [u8]) {
        // SAFETY: as above; all bytes were initialised when the memory was allocated.
        unsafe { std::ptr::copy_nonoverlapping(self.place(offset, to.len()), to.as_mut_ptr(), to.len()) };
    }
}
