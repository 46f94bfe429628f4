//! Priorities of streams: kept for whoever asks. Kernels run one after another here, so none comes before another one.

use std::ffi::{c_int, c_uint};

use crate::context::entered;
use crate::memory::enter;
use crate::status::{INVALID_VALUE, SUCCESS, Status, put};
use crate::streams::cuStreamCreate;

/// The lowest priority, and that of streams for which none is asked.
const LEAST: c_int = 0;
/// The highest one.
const GREATEST: c_int = -5;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> Status {
    enter!();
    // SAFETY: the interface asks for places for two numbers.
    let first = unsafe { put(least, LEAST) };
    // SAFETY: as above.
    first.max(unsafe { put(greatest, GREATEST) })
}

/// A priority out of the range becomes the nearest one, as the driver's does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreateWithPriority(stream: *mut u64, flags: c_uint, priority: c_int) -> Status {
    let context = enter!();
    // SAFETY: the interface asks for a place for a handle.
    let status = unsafe { cuStreamCreate(stream, flags) };
    if status == SUCCESS {
        // SAFETY: the call has written the handle there.
        let handle = unsafe { *stream };
        sync::lock(&context.priorities).insert(handle, priority.clamp(GREATEST, LEAST));
    }
    status
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamGetPriority(stream: u64, priority: *mut c_int) -> Status {
    match sync::lock(&enter!().priorities).get(&stream) {
        // SAFETY: the interface asks for a place for a number.
        Some(known) => unsafe { put(priority, *known) },
        None => INVALID_VALUE,
    }
}
