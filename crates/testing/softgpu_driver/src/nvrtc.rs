//! NVRTC itself, called through a copy of its interface that makes PTX of everything: the soft GPU runs no code of an
//! architecture. Where a caller asks for a CUBIN, the PTX follows a header of ELF, and the driver here loads that.
//!
//! Its version is one that NVRTC never has, so that caches of code keep the two apart. A folder that the settings name
//! keeps the PTX under NVRTC's own version: programs that call NVRTC itself share it.

use std::ffi::{CStr, c_char, c_int};
use std::sync::{Mutex, OnceLock};

use nvidia::Search;
use nvidia::nvrtc::{Cache, CompileError, Compiled, Compiler, Source, Target};
use sync::lock;

use crate::handles::Handles;
use crate::settings::settings;

/// A result: 0 is success.
type Status = c_int;

const SUCCESS: Status = 0;
const INVALID_OPTION: Status = 5;
const COMPILATION: Status = 6;
const INTERNAL_ERROR: Status = 11;

/// Added to the minor version.
const MINORS: c_int = 1000;

/// The option that names the target.
const ARCHITECTURE: &str = "--gpu-architecture=";

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

/// A text with its PTX.
struct Program {
    source: Source,
    /// Empty until it is compiled.
    ptx: String,
    log: String,
}

/// NVRTC, and the programs of its callers.
struct Nvrtc {
    compiler: Compiler,
    /// PTX that is kept.
    kept: Option<Cache>,
    programs: Mutex<Handles<Program>>,
}

/// The library that the settings name.
fn nvrtc() -> Option<&'static Nvrtc> {
    static NVRTC: OnceLock<Option<Nvrtc>> = OnceLock::new();
    let opened = NVRTC.get_or_init(|| {
        let settings = settings().as_ref().ok()?;
        let compiler = Compiler::open(&Search::only([settings.nvrtc.clone()?])).ok()?;
        Some(Nvrtc { compiler, kept: settings.kernels.clone().map(Cache::in_folder), programs: Mutex::default() })
    });
    opened.as_ref()
}

/// The number of an architecture, and a letter.
fn name_of(target: &Target) -> &str {
    match target {
        Target::Ptx(name) | Target::Cubin(name) => name,
    }
}

/// The result of work that has one where NVRTC and the program are there.
fn status_of(work: impl FnOnce(&Nvrtc) -> Option<Status>) -> Status {
    nvrtc().and_then(work).unwrap_or(INTERNAL_ERROR)
}

/// # Safety
/// `text` is a text with a zero at its end.
unsafe fn text_at(text: *const c_char) -> String {
    // SAFETY: as above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[unsafe(no_mangle)]
pub extern "C" fn nvrtcGetErrorString(status: Status) -> *const c_char {
    let text = match status {
        SUCCESS => c"NVRTC_SUCCESS",
        INVALID_OPTION => c"NVRTC_ERROR_INVALID_OPTION",
        COMPILATION => c"NVRTC_ERROR_COMPILATION",
        _ => c"of the soft GPU, whose settings name no NVRTC that can be opened",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcVersion(major: *mut c_int, minor: *mut c_int) -> Status {
    status_of(|nvrtc| {
        let (own_major, own_minor) = nvrtc.compiler.version();
        let stated = settings().as_ref().ok().and_then(|settings| settings.nvrtc_version);
        let (first, second) = stated.unwrap_or((own_major as c_int, own_minor as c_int));
        // SAFETY: the interface asks for two places.
        unsafe {
            *major = first;
            *minor = second + MINORS;
        }
        Some(SUCCESS)
    })
}

/// The architectures that NVRTC and the settings know.
fn known(nvrtc: &Nvrtc) -> Option<Vec<u32>> {
    let newest = settings().as_ref().ok()?.nvrtc_newest;
    let is_known = |number: &u32| newest.is_none_or(|newest| *number <= newest.major * 10 + newest.minor);
    Some(nvrtc.compiler.architectures().ok()?.into_iter().filter(is_known).collect())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetNumSupportedArchs(count: *mut c_int) -> Status {
    status_of(|nvrtc| {
        let all = known(nvrtc)?;
        // SAFETY: the interface asks for a place.
        unsafe { *count = all.len() as c_int };
        Some(SUCCESS)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetSupportedArchs(architectures: *mut c_int) -> Status {
    status_of(|nvrtc| {
        for (index, architecture) in known(nvrtc)?.into_iter().enumerate() {
            // SAFETY: the interface asks for as many places as were counted.
            unsafe { *architectures.add(index) = architecture as c_int };
        }
        Some(SUCCESS)
    })
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
    status_of(|nvrtc| {
        // SAFETY: the interface asks for texts, and for two lists of `count` texts.
        let source = unsafe {
            let source = Source::new(text_at(name), text_at(text));
            (0..count as usize)
                .fold(source, |source, index| source.header(text_at(*names.add(index)), text_at(*headers.add(index))))
        };
        let handle = lock(&nvrtc.programs).add(Program { source, ptx: String::new(), log: String::new() });
        // SAFETY: the interface asks for a place.
        unsafe { *program = handle as usize };
        Some(SUCCESS)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcDestroyProgram(program: *mut usize) -> Status {
    // SAFETY: the interface asks for the place of a program.
    status_of(|nvrtc| lock(&nvrtc.programs).remove(unsafe { *program } as u64).map(|_| SUCCESS))
}

/// An architecture's PTX is made where its code is asked for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcCompileProgram(program: usize, count: c_int, options: *const *const c_char) -> Status {
    // SAFETY: the interface asks for `count` texts.
    let all: Vec<String> = (0..count as usize).map(|index| unsafe { text_at(*options.add(index)) }).collect();
    let architecture = all.iter().find_map(|option| option.strip_prefix(ARCHITECTURE));
    let target = architecture.and_then(|name| name.replace("sm_", "compute_").parse::<Target>().ok());
    let Some(target) = target else { return INVALID_OPTION };
    let options: Vec<&str> =
        all.iter().map(String::as_str).filter(|option| !option.starts_with(ARCHITECTURE)).collect();
    let number: Option<u32> = name_of(&target).trim_end_matches(|last: char| !last.is_ascii_digit()).parse().ok();
    status_of(|nvrtc| {
        if number.is_none_or(|number| !known(nvrtc).is_some_and(|known| known.contains(&number))) {
            return Some(INVALID_OPTION);
        }
        let source = lock(&nvrtc.programs).get(program as u64)?.source.clone();
        let compiled = match &nvrtc.kept {
            Some(cache) => cache.compile(&nvrtc.compiler, &source, &target, &options),
            None => nvrtc.compiler.compile(&source, &target, &options),
        };
        let (status, ptx, log) = match compiled {
            Ok(Compiled { code, log }) => (SUCCESS, code.ptx()?.to_string(), log),
            Err(CompileError::Source { log, .. }) => (COMPILATION, String::new(), log),
            Err(CompileError::Library { log, .. }) => (INTERNAL_ERROR, String::new(), log),
            Err(CompileError::ZeroByte(_)) => return None,
        };
        let mut programs = lock(&nvrtc.programs);
        let program = programs.get_mut(program as u64)?;
        (program.ptx, program.log) = (ptx, log);
        Some(status)
    })
}

/// The bytes of a text of a program after `head`, with the zero at the end.
unsafe fn put_size(program: usize, head: &[u8], text: fn(&Program) -> &str, bytes: *mut usize) -> Status {
    status_of(|nvrtc| {
        let size = head.len() + text(lock(&nvrtc.programs).get(program as u64)?).len() + 1;
        // SAFETY: the interface asks for a place.
        unsafe { *bytes = size };
        Some(SUCCESS)
    })
}

/// Writes the bytes whose number [`put_size`] gives.
unsafe fn put(program: usize, head: &[u8], text: fn(&Program) -> &str, to: *mut c_char) -> Status {
    status_of(|nvrtc| {
        let whole = [head, text(lock(&nvrtc.programs).get(program as u64)?).as_bytes(), &[0]].concat();
        // SAFETY: the interface asks for a place of the size above.
        unsafe { to.cast::<u8>().copy_from_nonoverlapping(whole.as_ptr(), whole.len()) };
        Some(SUCCESS)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetPTXSize(program: usize, bytes: *mut usize) -> Status {
    // SAFETY: as of this call.
    unsafe { put_size(program, &[], |program| &program.ptx, bytes) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetPTX(program: usize, text: *mut c_char) -> Status {
    // SAFETY: as of this call.
    unsafe { put(program, &[], |program| &program.ptx, text) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetCUBINSize(program: usize, bytes: *mut usize) -> Status {
    // SAFETY: as of this call.
    unsafe { put_size(program, &HEAD, |program| &program.ptx, bytes) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetCUBIN(program: usize, cubin: *mut c_char) -> Status {
    // SAFETY: as of this call.
    unsafe { put(program, &HEAD, |program| &program.ptx, cubin) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetProgramLogSize(program: usize, bytes: *mut usize) -> Status {
    // SAFETY: as of this call.
    unsafe { put_size(program, &[], |program| &program.log, bytes) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetProgramLog(program: usize, log: *mut c_char) -> Status {
    // SAFETY: as of this call.
    unsafe { put(program, &[], |program| &program.log, log) }
}
