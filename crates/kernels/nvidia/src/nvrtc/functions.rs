//! The functions of NVRTC.

use std::ffi::{c_char, c_int, c_void};

use crate::table::{functions, named};

named! {
    /// The result of every call.
    Status(c_int) = "nvrtcResult";
    /// A program that is being compiled.
    Program(*mut c_void) = "nvrtcProgram";
}

pub(crate) const SUCCESS: Status = Status(0);
pub(crate) const INVALID_OPTION: Status = Status(5);
pub(crate) const COMPILATION: Status = Status(6);

functions! {
    /// See the module.
    Functions {
        error_string = "nvrtcGetErrorString": (Status) -> *const c_char;
        version = "nvrtcVersion": (*mut c_int, *mut c_int) -> Status;
        count_architectures = "nvrtcGetNumSupportedArchs": (*mut c_int) -> Status;
        architectures = "nvrtcGetSupportedArchs": (*mut c_int) -> Status;
        create = "nvrtcCreateProgram": (
            *mut Program,
            *const c_char,
            *const c_char,
            c_int,
            *const *const c_char,
            *const *const c_char
        ) -> Status;
        destroy = "nvrtcDestroyProgram": (*mut Program) -> Status;
        compile = "nvrtcCompileProgram": (Program, c_int, *const *const c_char) -> Status;
        ptx_size = "nvrtcGetPTXSize": (Program, *mut usize) -> Status;
        ptx = "nvrtcGetPTX": (Program, *mut c_char) -> Status;
        cubin_size = "nvrtcGetCUBINSize": (Program, *mut usize) -> Status;
        cubin = "nvrtcGetCUBIN": (Program, *mut c_char) -> Status;
        log_size = "nvrtcGetProgramLogSize": (Program, *mut usize) -> Status;
        log = "nvrtcGetProgramLog": (Program, *mut c_char) -> Status;
    }
}
