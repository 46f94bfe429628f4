//! NVRTC itself, called through a copy of its interface that makes PTX of everything: the soft GPU runs no code of an
//! architecture. Where a caller asks for a CUBIN, the PTX follows a header of ELF, and the driver here loads that.
//!
//! Its version is one that NVRTC never has, so that caches of code keep the two apart.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

use crate::settings::settings;

/// A result: 0 is success.
type Status = c_int;

const SUCCESS: Status = 0;
const INTERNAL_ERROR: Status = 11;

/// Added to the minor version.
const MINORS: c_int = 1000;

/// The head of a file of ELF without tables, with the mark of this library.
const HEAD: [u8; 64] = {
    let mut head = [0; 64];
    let start = *b"\x7fELF\x02\x01\x01\0softgpu";
    let mut at = 0;
    while at < start.len() {
        head[at] = start[at];
        at += 1;
    }
    head
};

/// The PTX of an image, if this library has made it.
///
/// # Safety
/// `image` is a text with a zero at its end, or a file of ELF.
pub unsafe fn ptx_of(image: *const c_char) -> Option<&'static CStr> {
    let bytes = image.cast::<u8>();
    // SAFETY: a text that is shorter ends the comparison with its zero.
    let is_ours = (0..16).all(|at| unsafe { *bytes.add(at) } == HEAD[at]);
    // SAFETY: after such a head comes a text with a zero at its end.
    is_ours.then(|| unsafe { CStr::from_ptr(image.add(HEAD.len())) })
}

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

const NOW: c_int = 2;
const GLOBAL: c_int = 0x100;

fn opened(path: &Path, flags: c_int) -> Option<usize> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: the user's word is that this is NVIDIA's library.
    let library = unsafe { dlopen(path.as_ptr(), flags) };
    (!library.is_null()).then(|| library.expose_provenance())
}

/// The address of a function of the library that the settings name.
fn symbol(name: &CStr) -> Option<*mut c_void> {
    static LIBRARY: OnceLock<Option<usize>> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| {
        let path = settings().as_ref().ok()?.nvrtc.as_deref()?;
        // NVRTC opens its built-in functions by name alone.
        let is_builtins = |name: &OsStr| name.as_bytes().starts_with(b"libnvrtc-builtins.so.");
        for entry in path.parent()?.read_dir().ok()?.flatten().filter(|entry| is_builtins(&entry.file_name())) {
            opened(&entry.path(), NOW | GLOBAL);
        }
        opened(path, NOW)
    });
    // SAFETY: the library is open.
    let found = unsafe { dlsym(std::ptr::with_exposed_provenance_mut((*library)?), name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// Calls a function of NVRTC by the name of the one that is declared.
macro_rules! real {
    ($name:literal, $($argument:expr => $type:ty),*) => {
        match symbol($name) {
            // SAFETY: this is the type of the function in NVRTC's header, and arguments are those of the caller.
            Some(address) => unsafe {
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> Status>(address)($($argument),*)
            },
            None => INTERNAL_ERROR,
        }
    };
}

#[unsafe(no_mangle)]
pub extern "C" fn nvrtcGetErrorString(status: Status) -> *const c_char {
    let text = match status {
        SUCCESS => c"NVRTC_SUCCESS",
        5 => c"NVRTC_ERROR_INVALID_OPTION",
        6 => c"NVRTC_ERROR_COMPILATION",
        _ => c"of the soft GPU, whose settings name no NVRTC that can be opened",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcVersion(major: *mut c_int, minor: *mut c_int) -> Status {
    let status = real!(c"nvrtcVersion", major => *mut c_int, minor => *mut c_int);
    if status == SUCCESS {
        // SAFETY: NVRTC has written there.
        unsafe { *minor += MINORS };
    }
    status
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetNumSupportedArchs(count: *mut c_int) -> Status {
    real!(c"nvrtcGetNumSupportedArchs", count => *mut c_int)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetSupportedArchs(all: *mut c_int) -> Status {
    real!(c"nvrtcGetSupportedArchs", all => *mut c_int)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcCreateProgram(
    program: *mut usize,
    text: *const c_char,
    name: *const c_char,
    count: c_int,
    headers: *const *const c_char,
    names: *const *const c_char,
) -> Status {
    real!(
        c"nvrtcCreateProgram", program => *mut usize, text => *const c_char, name => *const c_char, count => c_int,
        headers => *const *const c_char, names => *const *const c_char
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcDestroyProgram(program: *mut usize) -> Status {
    real!(c"nvrtcDestroyProgram", program => *mut usize)
}

/// Options that name an architecture name its PTX instead.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcCompileProgram(program: usize, count: c_int, options: *const *const c_char) -> Status {
    let of_ptx = |index: usize| {
        // SAFETY: the interface asks for `count` texts.
        let option = unsafe { CStr::from_ptr(*options.add(index)) }.to_string_lossy();
        CString::new(option.replace("--gpu-architecture=sm_", "--gpu-architecture=compute_")).unwrap_or_default()
    };
    let options: Vec<CString> = (0..count as usize).map(of_ptx).collect();
    let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
    real!(
        c"nvrtcCompileProgram", program => usize, count => c_int, pointers.as_ptr() => *const *const c_char
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetPTXSize(program: usize, bytes: *mut usize) -> Status {
    real!(c"nvrtcGetPTXSize", program => usize, bytes => *mut usize)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetPTX(program: usize, text: *mut c_char) -> Status {
    real!(c"nvrtcGetPTX", program => usize, text => *mut c_char)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetCUBINSize(program: usize, bytes: *mut usize) -> Status {
    // SAFETY: as of that call.
    let status = unsafe { nvrtcGetPTXSize(program, bytes) };
    if status == SUCCESS {
        // SAFETY: NVRTC has written there.
        unsafe { *bytes += HEAD.len() };
    }
    status
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetCUBIN(program: usize, cubin: *mut c_char) -> Status {
    // SAFETY: the interface asks for a place of the size above.
    unsafe {
        cubin.cast::<[u8; 64]>().write(HEAD);
        nvrtcGetPTX(program, cubin.add(HEAD.len()))
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetProgramLogSize(program: usize, bytes: *mut usize) -> Status {
    real!(c"nvrtcGetProgramLogSize", program => usize, bytes => *mut usize)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetProgramLog(program: usize, log: *mut c_char) -> Status {
    real!(c"nvrtcGetProgramLog", program => usize, log => *mut c_char)
}
