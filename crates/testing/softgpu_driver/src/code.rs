//! Modules, kernels and launches.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use gpu::{Arguments, FunctionHandle, Gpu, LaunchShape, ModuleHandle, ModuleImage, StreamHandle};

use crate::context::entered;
use crate::memory::enter;
use crate::nvrtc;
use crate::status::{INVALID_VALUE, NOT_FOUND, SUCCESS, Status, code, of, put, put_result};

/// The option that names a place for the compiler's log of errors, and the one for its size.
const ERROR_LOG: c_uint = 5;
const ERROR_LOG_BYTES: c_uint = 6;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadDataEx(
    module: *mut u64,
    image: *const c_void,
    count: c_uint,
    options: *const c_uint,
    values: *const *mut c_void,
) -> Status {
    let context = enter!();
    if image.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: the interface asks for a text with a zero at its end, or a CUBIN, which has a zero among its first bytes.
    let text = unsafe { nvrtc::ptx_of(image.cast()).unwrap_or_else(|| CStr::from_ptr(image.cast())) };
    let loaded = match text.to_str() {
        Ok(text) if !text.starts_with('\x7f') => context.gpu.load(ModuleImage::Ptx(text)),
        _ => context.gpu.load(ModuleImage::Cubin(&[])),
    };
    if let Err(error) = &loaded {
        // SAFETY: the interface asks for `count` options and values.
        unsafe { write_log(&error.text, count, options, values) };
    }
    // SAFETY: the interface asks for a place for a handle.
    unsafe { put_result(module, loaded.map(|module| module.0)) }
}

/// Writes the log where the options ask for it.
///
/// # Safety
/// There are `count` options and values, and the log's value is a place for as many bytes as its size tells.
unsafe fn write_log(text: &str, count: c_uint, options: *const c_uint, values: *const *mut c_void) {
    let (mut place, mut bytes) = (std::ptr::null_mut::<u8>(), 0);
    for index in 0..count as usize {
        // SAFETY: as the caller promises.
        let (option, value) = unsafe { (*options.add(index), *values.add(index)) };
        match option {
            ERROR_LOG => place = value.cast(),
            ERROR_LOG_BYTES => bytes = value.addr(),
            _ => {}
        }
    }
    if place.is_null() || bytes == 0 {
        return;
    }
    let kept = text.len().min(bytes - 1);
    // SAFETY: as the caller promises, the place has `bytes` bytes.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), place, kept);
        place.add(kept).write(0);
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleUnload(module: u64) -> Status {
    of(enter!().gpu.unload(ModuleHandle(module)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(function: *mut u64, module: u64, name: *const c_char) -> Status {
    let context = enter!();
    if name.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: the interface asks for a text with a zero at its end.
    let name = unsafe { CStr::from_ptr(name) };
    match name.to_str().map(|name| context.gpu.function(ModuleHandle(module), name)) {
        // SAFETY: the interface asks for a place for a handle.
        Ok(Ok(found)) => unsafe { put(function, found.0) },
        Ok(Err(_)) | Err(_) => NOT_FOUND,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncGetAttribute(value: *mut c_int, attribute: c_uint, function: u64) -> Status {
    let facts = match enter!().gpu.function_facts(FunctionHandle(function)) {
        Ok(facts) => facts,
        Err(error) => return code(&error),
    };
    let known = match attribute {
        0 => facts.max_threads_per_block,
        1 => facts.shared_bytes,
        2 => 0,
        3 => facts.local_bytes,
        4 => facts.registers,
        _ => return INVALID_VALUE,
    };
    // SAFETY: the interface asks for a place for a number.
    unsafe { put(value, known as c_int) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFuncSetAttribute(function: u64, attribute: c_uint, value: c_int) -> Status {
    let context = enter!();
    match (attribute, u32::try_from(value)) {
        // The most dynamic shared memory.
        (8, Ok(bytes)) => of(context.gpu.allow_shared(FunctionHandle(function), bytes)),
        // The preferred share of shared memory changes nothing here.
        (9, _) => SUCCESS,
        _ => INVALID_VALUE,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncGetParamInfo(
    function: u64,
    index: usize,
    offset: *mut usize,
    bytes: *mut usize,
) -> Status {
    let context = enter!();
    let Some(place) = context.gpu.parameter(FunctionHandle(function), index) else { return INVALID_VALUE };
    // SAFETY: the interface asks for a place for a size.
    let first = unsafe { put(offset, place.start) };
    // The size may be left out.
    if bytes.is_null() {
        return first;
    }
    // SAFETY: as above.
    first.max(unsafe { put(bytes, place.len()) })
}

/// The bytes of all arguments of a kernel.
///
/// # Safety
/// `arguments` is null or has a pointer for each parameter, to as many bytes as it has.
pub unsafe fn arguments_of(function: FunctionHandle, arguments: *const *const c_void) -> Result<Arguments, Status> {
    let context = entered()?;
    let mut all = Arguments::new();
    let mut index = 0;
    while let Some(place) = context.gpu.parameter(function, index) {
        if arguments.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: as the caller promises.
        let bytes = unsafe { std::slice::from_raw_parts((*arguments.add(index)).cast::<u8>(), place.len()) };
        all = all.with(bytes);
        index += 1;
    }
    Ok(all)
}

#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn cuLaunchKernel(
    function: u64,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared_bytes: c_uint,
    stream: u64,
    arguments: *const *const c_void,
    extra: *const *const c_void,
) -> Status {
    let context = enter!();
    let function = FunctionHandle(function);
    if !extra.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: the interface asks for a pointer for each parameter of the function.
    let all = match unsafe { arguments_of(function, arguments) } {
        Ok(all) => all,
        Err(status) => return status,
    };
    let shape = LaunchShape { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared_bytes };
    of(context.gpu.launch(StreamHandle(stream), function, shape, &all))
}
