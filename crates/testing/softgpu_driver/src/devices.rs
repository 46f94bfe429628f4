//! The driver, its GPU and the context.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::process::{process, set_context, settings};
use crate::status::{INVALID_VALUE, NOT_SUPPORTED, SUCCESS, Status, put};

/// The value of a context's pointer: there is one.
const CONTEXT: usize = 1;
/// An ordinal that does not exist.
const INVALID_DEVICE: Status = 101;

#[unsafe(no_mangle)]
pub extern "C" fn cuInit(flags: c_uint) -> Status {
    if flags == 0 { SUCCESS } else { INVALID_VALUE }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> Status {
    // SAFETY: the interface asks for a place for a number.
    unsafe { put(version, 13000) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> Status {
    // SAFETY: the interface asks for a place for a number.
    unsafe { put(count, 1) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> Status {
    if ordinal != 0 {
        return INVALID_DEVICE;
    }
    // SAFETY: the interface asks for a place for a device.
    unsafe { put(device, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, bytes: c_int, device: c_int) -> Status {
    if device != 0 || name.is_null() || bytes < 1 {
        return INVALID_VALUE;
    }
    let text = settings().facts(0).name;
    let kept = text.len().min(bytes as usize - 1);
    // SAFETY: the interface asks for a place for N bytes.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), name, kept);
        name.add(kept).write(0);
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) -> Status {
    if device != 0 {
        return INVALID_DEVICE;
    }
    // SAFETY: the interface asks for a place for a size.
    unsafe { put(bytes, settings().memory_bytes as usize) }
}

/// The identifier of this copy of the library in this process: no other one has its GPU.
fn own_uuid() -> [u8; 16] {
    static PLACE: u8 = 0;
    let place = (&raw const PLACE).addr() as u64;
    let mut uuid = *b"soft\0\0\0\0\0\0\0\0\0\0\0\0";
    uuid[4..8].copy_from_slice(&std::process::id().to_le_bytes());
    uuid[8..].copy_from_slice(&place.to_le_bytes());
    uuid
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: c_int) -> Status {
    if device != 0 {
        return INVALID_DEVICE;
    }
    // SAFETY: the interface asks for a place for 16 bytes.
    unsafe { put(uuid, own_uuid()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_uint, device: c_int) -> Status {
    let settings = settings();
    let known = match attribute {
        // Threads of a block, lanes of a warp, multiprocessors.
        1 => 1024,
        10 => 32,
        16 => settings.multiprocessors,
        75 => settings.capability.major,
        76 => settings.capability.minor,
        97 => settings.max_shared_bytes,
        // Virtual memory.
        102 => 1,
        _ => return INVALID_VALUE,
    };
    if device != 0 {
        return INVALID_DEVICE;
    }
    // SAFETY: the interface asks for a place for a number.
    unsafe { put(value, known as c_int) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut *mut c_void, device: c_int) -> Status {
    if device != 0 {
        return INVALID_DEVICE;
    }
    process();
    // SAFETY: the interface asks for a place for a pointer.
    unsafe { put(context, std::ptr::without_provenance_mut(CONTEXT)) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> Status {
    if device == 0 { SUCCESS } else { INVALID_DEVICE }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCurrent(context: *mut c_void) -> Status {
    match context.addr() {
        0 | CONTEXT => {
            set_context(!context.is_null());
            SUCCESS
        }
        _ => NOT_SUPPORTED,
    }
}
