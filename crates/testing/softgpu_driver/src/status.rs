//! Results of calls.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};

use gpu::{DriverError, DriverErrorKind};

/// A result: 0 is success.
pub type Status = u32;

/// No failure.
pub const SUCCESS: Status = 0;
/// An argument that does not exist or fit.
pub const INVALID_VALUE: Status = 1;
/// A driver that did not start.
pub const NOT_INITIALIZED: Status = 3;
/// A thread without a context.
pub const INVALID_CONTEXT: Status = 201;
/// A handle or name that does not exist.
pub const NOT_FOUND: Status = 500;
/// Work that has not ended.
pub const NOT_READY: Status = 600;
/// A call that this driver does not have.
pub const NOT_SUPPORTED: Status = 801;

const TEXTS: &[(Status, &CStr, &CStr)] = &[
    (SUCCESS, c"CUDA_SUCCESS", c"no error"),
    (INVALID_VALUE, c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
    (2, c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
    (NOT_INITIALIZED, c"CUDA_ERROR_NOT_INITIALIZED", c"settings that cannot be read"),
    (4, c"CUDA_ERROR_DEINITIALIZED", c"the GPU is lost"),
    (100, c"CUDA_ERROR_NO_DEVICE", c"no device"),
    (101, c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal"),
    (INVALID_CONTEXT, c"CUDA_ERROR_INVALID_CONTEXT", c"no context on this thread"),
    (214, c"CUDA_ERROR_ECC_UNCORRECTABLE", c"an uncorrectable error of the memory"),
    (218, c"CUDA_ERROR_INVALID_PTX", c"PTX that this GPU does not run"),
    (NOT_FOUND, c"CUDA_ERROR_NOT_FOUND", c"a name that does not exist"),
    (NOT_READY, c"CUDA_ERROR_NOT_READY", c"work that has not ended"),
    (700, c"CUDA_ERROR_ILLEGAL_ADDRESS", c"a kernel that broke a rule"),
    (702, c"CUDA_ERROR_LAUNCH_TIMEOUT", c"a kernel that does not end"),
    (NOT_SUPPORTED, c"CUDA_ERROR_NOT_SUPPORTED", c"a call that the soft GPU does not have"),
];

thread_local! {
    /// The last failure of a thread, with its words.
    static LAST: RefCell<(Status, CString)> = RefCell::default();
}

/// The result of a failure, whose words the thread keeps.
pub fn code(error: &DriverError) -> Status {
    let status = code_of(error.kind);
    if status != NOT_READY {
        LAST.with(|last| *last.borrow_mut() = (status, CString::new(error.text.as_str()).unwrap_or_default()));
    }
    status
}

fn code_of(kind: DriverErrorKind) -> Status {
    match kind {
        DriverErrorKind::Unavailable => 100,
        DriverErrorKind::OutOfMemory => 2,
        DriverErrorKind::InvalidArgument => INVALID_VALUE,
        DriverErrorKind::InvalidImage => 218,
        DriverErrorKind::KernelFault => 700,
        DriverErrorKind::Timeout => 702,
        DriverErrorKind::Ecc => 214,
        DriverErrorKind::Lost => 4,
        DriverErrorKind::NotReady => NOT_READY,
        DriverErrorKind::Other(code) => code,
    }
}

/// The result of a call without a value.
pub fn of(result: Result<(), DriverError>) -> Status {
    result.map_or_else(|error| code(&error), |()| SUCCESS)
}

/// Writes a value where a caller asks for it.
///
/// # Safety
/// `to` is null or a place for a value.
pub unsafe fn put<T>(to: *mut T, value: T) -> Status {
    if to.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: the caller passes a place for a value.
    unsafe { to.write(value) };
    SUCCESS
}

/// Writes the value of a call that may fail.
///
/// # Safety
/// `to` is null or a place for a value.
pub unsafe fn put_result<T>(to: *mut T, result: Result<T, DriverError>) -> Status {
    match result {
        // SAFETY: as the caller promises.
        Ok(value) => unsafe { put(to, value) },
        Err(error) => code(&error),
    }
}

/// # Safety
/// `text` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(status: Status, text: *mut *const c_char) -> Status {
    let known = TEXTS.iter().find(|(code, ..)| *code == status);
    // SAFETY: the interface asks for a place for a pointer.
    let put = unsafe { put(text, known.map_or(std::ptr::null(), |(_, name, _)| name.as_ptr())) };
    if known.is_some() { put } else { INVALID_VALUE }
}

/// The words of the thread's last failure, if it had this result, until its next one.
///
/// # Safety
/// `text` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(status: Status, text: *mut *const c_char) -> Status {
    let last = LAST.with_borrow(|(code, words)| (*code == status && !words.is_empty()).then(|| words.as_ptr()));
    let known = TEXTS.iter().find(|(code, ..)| *code == status).map(|(_, _, words)| words.as_ptr());
    // SAFETY: the interface asks for a place for a pointer.
    let put = unsafe { put(text, last.or(known).unwrap_or(std::ptr::null())) };
    if known.is_some() { put } else { INVALID_VALUE }
}
