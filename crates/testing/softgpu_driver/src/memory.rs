//! Memory of the GPU, by addresses and physical memory of their own, and pinned memory of the host.

use std::ffi::{c_int, c_uint, c_void};

use gpu::{DevicePointer, Gpu};

use crate::context::{Context, entered};
use crate::settings::{MemorySharing, settings};
use crate::status::{INVALID_VALUE, SUCCESS, Status, code, of, put};

/// The unit of addresses and sizes.
const GRANULARITY: usize = 2 << 20;
/// The alignment of pinned memory.
const PAGE: usize = 4096;

/// The kind of memory, its handles, where it is, and who reaches it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Properties {
    kind: c_uint,
    handle_types: c_uint,
    location_kind: c_uint,
    location: c_int,
    windows: usize,
    compression: u8,
    gpu_direct: u8,
    usage: u16,
    reserved: [u8; 4],
}

/// Handles by file descriptors, and those of a fabric.
const FILES: c_uint = 1;
const FABRIC: c_uint = 8;
/// Memory that the process may not have.
const NOT_PERMITTED: Status = 800;

/// Who may use memory.
#[repr(C)]
pub struct Access {
    location_kind: c_uint,
    location: c_int,
    flags: c_uint,
}

/// Enters the driver; returns its result where the thread has no context.
macro_rules! enter {
    () => {
        match entered() {
            Ok(context) => context,
            Err(status) => return status,
        }
    };
}
pub(crate) use enter;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Status {
    match enter!().gpu.free_memory() {
        Ok(memory) => {
            // SAFETY: the interface asks for places for two sizes.
            let first = unsafe { put(free, memory.free_bytes as usize) };
            // SAFETY: as above.
            first.max(unsafe { put(total, memory.total_bytes as usize) })
        }
        Err(error) => code(&error),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetAllocationGranularity(
    bytes: *mut usize,
    properties: *const Properties,
    option: c_uint,
) -> Status {
    let context = enter!();
    // SAFETY: the interface asks for properties or null.
    let properties = unsafe { properties.as_ref() };
    if option > 1 || properties.is_none_or(|properties| !properties.is_of(context)) {
        return INVALID_VALUE;
    }
    // SAFETY: the interface asks for a place for a size.
    unsafe { put(bytes, GRANULARITY) }
}

impl Properties {
    /// Pinned memory on the GPU of a context, with handles that the GPU has.
    fn is_of(&self, context: &Context) -> bool {
        let is_there = self.location_kind == 1 && self.location as usize == context.ordinal;
        let sharing = settings().as_ref().map_or(MemorySharing::None, |settings| settings.sharing);
        let is_shared = self.handle_types & !handle_types(sharing) == 0 && self.gpu_direct <= gpu_direct(sharing);
        self.kind == 1 && is_shared && is_there
    }
}

/// The kinds of handles that memory may have.
pub fn handle_types(sharing: MemorySharing) -> c_uint {
    match sharing {
        MemorySharing::None => 0,
        MemorySharing::Files => FILES,
        MemorySharing::Fabric | MemorySharing::UnpermittedFabric => FILES | FABRIC,
    }
}

/// 1 where network cards may reach memory.
pub fn gpu_direct(sharing: MemorySharing) -> u8 {
    (sharing != MemorySharing::None).into()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAddressReserve(
    address: *mut u64,
    bytes: usize,
    alignment: usize,
    wanted: u64,
    flags: u64,
) -> Status {
    let context = enter!();
    let fits =
        bytes > 0 && bytes.is_multiple_of(GRANULARITY) && (alignment == 0 || GRANULARITY.is_multiple_of(alignment));
    if !fits || wanted != 0 || flags != 0 {
        return INVALID_VALUE;
    }
    // SAFETY: the interface asks for a place for an address.
    unsafe { put(address, context.gpu.reserve_addresses(bytes).0) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAddressFree(address: u64, bytes: usize) -> Status {
    enter!();
    if address == 0 || bytes == 0 { INVALID_VALUE } else { SUCCESS }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemCreate(
    handle: *mut u64,
    bytes: usize,
    properties: *const Properties,
    flags: u64,
) -> Status {
    let context = enter!();
    // SAFETY: the interface asks for properties or null.
    let properties = unsafe { properties.as_ref() };
    let Some(properties) = properties.filter(|properties| properties.is_of(context)) else { return INVALID_VALUE };
    if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) || flags != 0 {
        return INVALID_VALUE;
    }
    let sharing = settings().as_ref().map_or(MemorySharing::None, |settings| settings.sharing);
    if sharing == MemorySharing::UnpermittedFabric && properties.handle_types & FABRIC != 0 {
        return NOT_PERMITTED;
    }
    let free = match context.gpu.free_memory() {
        Ok(memory) => memory.free_bytes,
        Err(error) => return code(&error),
    };
    let mut physical = sync::lock(&context.physical);
    let waiting: usize = physical.values().map(|(bytes, _)| bytes).sum();
    if (bytes + waiting) as u64 > free {
        return 2;
    }
    let number = physical.keys().max().copied().unwrap_or(0) + 1;
    physical.insert(number, (bytes, *properties));
    // SAFETY: the interface asks for a place for a handle.
    unsafe { put(handle, number) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemRelease(handle: u64) -> Status {
    if sync::lock(&enter!().physical).remove(&handle).is_some() { SUCCESS } else { INVALID_VALUE }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemMap(address: u64, bytes: usize, offset: usize, handle: u64, flags: u64) -> Status {
    let context = enter!();
    let known = sync::lock(&context.physical).get(&handle).copied();
    let Some((_, properties)) = known.filter(|(known, _)| *known == bytes) else { return INVALID_VALUE };
    if offset != 0 || flags != 0 || address == 0 {
        return INVALID_VALUE;
    }
    sync::lock(&context.mapped).insert(address, bytes);
    sync::lock(&context.properties).insert(address, properties);
    SUCCESS
}

/// The handle is the address itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemRetainAllocationHandle(handle: *mut u64, address: u64) -> Status {
    match sync::lock(&enter!().properties).get(&address) {
        // SAFETY: the interface asks for a place for a handle.
        Some(_) => unsafe { put(handle, address) },
        None => INVALID_VALUE,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetAllocationPropertiesFromHandle(properties: *mut Properties, handle: u64) -> Status {
    match sync::lock(&enter!().properties).get(&handle) {
        // SAFETY: the interface asks for a place for properties.
        Some(known) => unsafe { put(properties, *known) },
        None => INVALID_VALUE,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemSetAccess(address: u64, bytes: usize, access: *const Access, count: usize) -> Status {
    let context = enter!();
    // SAFETY: the interface asks for `count` descriptions.
    let access = unsafe { access.as_ref() };
    let is_there = |access: &Access| access.location_kind == 1 && access.location as usize == context.ordinal;
    let is_ours = access.is_some_and(|access| is_there(access) && access.flags == 3);
    if !is_ours || count != 1 || sync::lock(&context.mapped).remove(&address) != Some(bytes) {
        return INVALID_VALUE;
    }
    sync::lock(&context.zeros).insert(address, bytes);
    of(context.gpu.back_addresses(DevicePointer(address), bytes))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemUnmap(address: u64, bytes: usize) -> Status {
    let context = enter!();
    if sync::lock(&context.mapped).remove(&address) == Some(bytes) {
        return SUCCESS;
    }
    sync::lock(&context.zeros).remove(&address);
    sync::lock(&context.properties).remove(&address);
    of(context.gpu.free(DevicePointer(address)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, flags: c_uint) -> Status {
    let context = enter!();
    let layout = std::alloc::Layout::from_size_align(bytes.max(1), PAGE);
    let (Ok(layout), 0..8) = (layout, flags) else { return INVALID_VALUE };
    // SAFETY: the layout has a size.
    let memory = unsafe { std::alloc::alloc_zeroed(layout) };
    if memory.is_null() {
        return 2;
    }
    sync::lock(&context.pinned).insert(memory.addr(), layout.size());
    // SAFETY: the interface asks for a place for a pointer.
    unsafe { put(address, memory.cast()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeHost(address: *mut c_void) -> Status {
    let Some(bytes) = sync::lock(&enter!().pinned).remove(&address.addr()) else { return INVALID_VALUE };
    let Ok(layout) = std::alloc::Layout::from_size_align(bytes, PAGE) else { return INVALID_VALUE };
    // SAFETY: the memory was allocated above with this layout, and is removed from the table once.
    unsafe { std::alloc::dealloc(address.cast(), layout) };
    SUCCESS
}
