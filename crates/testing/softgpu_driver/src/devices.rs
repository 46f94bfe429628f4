//! The driver, its GPUs and their contexts.

use std::ffi::{c_char, c_int, c_uint, c_void};

use gpu::{DeviceFacts, Gpu};

use crate::context::{Context, context, count, set_current};
use crate::memory::{gpu_direct, handle_types};
use crate::settings::{CUDA, MemorySharing, settings};
use crate::status::{INVALID_CONTEXT, INVALID_VALUE, NOT_INITIALIZED, SUCCESS, Status, put};

/// An ordinal that does not exist.
const INVALID_DEVICE: Status = 101;

/// The context of a device, whose number is its ordinal.
fn of_device(device: c_int) -> Result<&'static Context, Status> {
    usize::try_from(device).ok().and_then(context).ok_or(INVALID_DEVICE)
}

fn facts_of(device: c_int) -> Result<DeviceFacts, Status> {
    of_device(device).map(|context| context.gpu.facts().clone())
}

/// Settings that cannot be read are reported here, on the standard error: no call returns a text.
#[unsafe(no_mangle)]
pub extern "C" fn cuInit(flags: c_uint) -> Status {
    match settings() {
        Ok(_) if flags == 0 => SUCCESS,
        Ok(_) => INVALID_VALUE,
        Err(error) => {
            eprintln!("softgpu_driver: {error}");
            NOT_INITIALIZED
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> Status {
    // SAFETY: the interface asks for a place for a number.
    unsafe { put(version, settings().as_ref().map_or(CUDA, |settings| settings.cuda)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(number: *mut c_int) -> Status {
    // SAFETY: the interface asks for a place for a number.
    unsafe { put(number, count() as c_int) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> Status {
    match of_device(ordinal) {
        // SAFETY: the interface asks for a place for a device.
        Ok(_) => unsafe { put(device, ordinal) },
        Err(status) => status,
    }
}

/// Writes a text with a zero at its end, of at most `bytes`.
///
/// # Safety
/// `to` is null or a place for as many bytes.
unsafe fn put_text(to: *mut c_char, bytes: c_int, text: &str) -> Status {
    if to.is_null() || bytes < 1 {
        return INVALID_VALUE;
    }
    let kept = text.len().min(bytes as usize - 1);
    // SAFETY: as the caller promises.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), to, kept);
        to.add(kept).write(0);
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, bytes: c_int, device: c_int) -> Status {
    let Ok(text) = facts_of(device).map(|facts| facts.name) else { return INVALID_DEVICE };
    // SAFETY: the interface asks for a place for N bytes.
    unsafe { put_text(name, bytes, &text) }
}

/// Each process has GPUs of its own, so its number is the domain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetPCIBusId(id: *mut c_char, bytes: c_int, device: c_int) -> Status {
    let Ok(context) = of_device(device) else { return INVALID_DEVICE };
    let shared = settings().as_ref().ok().and_then(|settings| settings.bus.clone());
    let own = || format!("{:08x}:{:02x}:00.0", std::process::id(), context.ordinal);
    // SAFETY: the interface asks for a place for N bytes.
    unsafe { put_text(id, bytes, &shared.unwrap_or_else(own)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) -> Status {
    match facts_of(device) {
        // SAFETY: the interface asks for a place for a size.
        Ok(facts) => unsafe { put(bytes, facts.memory_bytes as usize) },
        Err(status) => status,
    }
}

/// The identifier of a GPU of this copy of the library in this process: no other one has it.
fn uuid_of(context: &Context) -> [u8; 16] {
    let place = std::ptr::from_ref(context).addr() as u64;
    let mut uuid = *b"soft\0\0\0\0\0\0\0\0\0\0\0\0";
    uuid[4..8].copy_from_slice(&std::process::id().to_le_bytes());
    uuid[8..].copy_from_slice(&place.to_le_bytes());
    uuid
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: c_int) -> Status {
    match of_device(device) {
        // SAFETY: the interface asks for a place for 16 bytes.
        Ok(context) => unsafe { put(uuid, uuid_of(context)) },
        Err(status) => status,
    }
}

fn sharing() -> MemorySharing {
    settings().as_ref().map_or(MemorySharing::None, |settings| settings.sharing)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_uint, device: c_int) -> Status {
    let Ok(facts) = facts_of(device) else { return INVALID_DEVICE };
    let known = match attribute {
        // Threads of a block, lanes of a warp, multiprocessors.
        1 => 1024,
        10 => 32,
        16 => facts.multiprocessors,
        75 => facts.capability.major,
        76 => facts.capability.minor,
        97 => facts.max_shared_bytes,
        // Virtual memory, and who may map and reach it.
        102 => 1,
        103 => handle_types(sharing()) & 1,
        110 => gpu_direct(sharing()).into(),
        128 => handle_types(sharing()) / 8,
        _ => return INVALID_VALUE,
    };
    // SAFETY: the interface asks for a place for a number.
    unsafe { put(value, known as c_int) }
}

/// The pointer of a context is its ordinal, counted from 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(pointer: *mut *mut c_void, device: c_int) -> Status {
    match of_device(device) {
        // SAFETY: the interface asks for a place for a pointer.
        Ok(context) => unsafe { put(pointer, std::ptr::without_provenance_mut(context.ordinal + 1)) },
        Err(status) => status,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> Status {
    of_device(device).map_or_else(|status| status, |_| SUCCESS)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCurrent(pointer: *mut c_void) -> Status {
    let entered = pointer.addr().checked_sub(1).map(context);
    if entered.is_some_and(|context| context.is_none()) {
        return INVALID_CONTEXT;
    }
    set_current(entered.flatten());
    SUCCESS
}
