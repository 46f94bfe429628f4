//! The calls of NVRTC with values and errors.

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::null_mut;

use super::functions::{Functions, Program, SUCCESS, Status};

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) call: &'static str,
    pub(super) status: Status,
}

fn checked(call: &'static str, status: Status) -> Result<(), Failure> {
    if status == SUCCESS { Ok(()) } else { Err(Failure { call, status }) }
}

/// A program, destroyed at its end.
pub(super) struct OpenProgram<'a> {
    functions: &'a Functions,
    program: Program,
}

impl Functions {
    /// Major and minor version.
    pub(super) fn versions(&self) -> Result<(c_int, c_int), Failure> {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the call writes two ints.
        checked("nvrtcVersion", unsafe { (self.version)(&mut major, &mut minor) })?;
        Ok((major, minor))
    }

    /// The architectures, such as 90 for 9.0.
    pub(super) fn supported(&self) -> Result<Vec<c_int>, Failure> {
        let mut count = 0;
        // SAFETY: the call writes one int.
        checked("nvrtcGetNumSupportedArchs", unsafe { (self.count_architectures)(&mut count) })?;
        let mut all = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: the call writes as many ints as it has counted.
        checked("nvrtcGetSupportedArchs", unsafe { (self.architectures)(all.as_mut_ptr()) })?;
        Ok(all)
    }

    /// The library's text for a result.
    pub(super) fn text(&self, status: Status) -> String {
        // SAFETY: the call accepts any number and returns a text that lives as long as the library.
        let text = unsafe { (self.error_string)(status) };
        if text.is_null() {
            return format!("result {}", status.0);
        }
        // SAFETY: see above.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    /// A program with headers: names and texts.
    pub(super) fn program(
        &self,
        name: &CStr,
        text: &CStr,
        headers: &[(CString, CString)],
    ) -> Result<OpenProgram<'_>, Failure> {
        let names: Vec<*const c_char> = headers.iter().map(|(name, _)| name.as_ptr()).collect();
        let texts: Vec<*const c_char> = headers.iter().map(|(_, text)| text.as_ptr()).collect();
        let count = c_int::try_from(headers.len()).unwrap_or(c_int::MAX);
        let mut program = Program(null_mut());
        // SAFETY: all texts end with a zero and live during the call, which copies them; both arrays have `count`
        // entries.
        let status =
            unsafe { (self.create)(&mut program, text.as_ptr(), name.as_ptr(), count, texts.as_ptr(), names.as_ptr()) };
        checked("nvrtcCreateProgram", status)?;
        Ok(OpenProgram { functions: self, program })
    }
}

impl OpenProgram<'_> {
    /// Compiles with `options`.
    pub(super) fn compile(&self, options: &[CString]) -> Result<(), Failure> {
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let count = c_int::try_from(options.len()).unwrap_or(c_int::MAX);
        // SAFETY: the program lives; the array has `count` texts that live during the call.
        let status = unsafe { (self.functions.compile)(self.program, count, pointers.as_ptr()) };
        checked("nvrtcCompileProgram", status)
    }

    /// The log of the compiler, without its last zero.
    pub(super) fn log(&self) -> Result<Vec<u8>, Failure> {
        let Functions { log_size, log, .. } = *self.functions;
        self.bytes(("nvrtcGetProgramLogSize", log_size), ("nvrtcGetProgramLog", log)).map(without_zero)
    }

    /// PTX as text, without its last zero.
    pub(super) fn ptx(&self) -> Result<Vec<u8>, Failure> {
        let Functions { ptx_size, ptx, .. } = *self.functions;
        self.bytes(("nvrtcGetPTXSize", ptx_size), ("nvrtcGetPTX", ptx)).map(without_zero)
    }

    /// The CUBIN; empty where the target was PTX.
    pub(super) fn cubin(&self) -> Result<Vec<u8>, Failure> {
        let Functions { cubin_size, cubin, .. } = *self.functions;
        self.bytes(("nvrtcGetCUBINSize", cubin_size), ("nvrtcGetCUBIN", cubin))
    }

    fn bytes(
        &self,
        (size_call, size): (&'static str, unsafe extern "C" fn(Program, *mut usize) -> Status),
        (call, write): (&'static str, unsafe extern "C" fn(Program, *mut c_char) -> Status),
    ) -> Result<Vec<u8>, Failure> {
        let mut len = 0;
        // SAFETY: the program lives; the call writes one size.
        checked(size_call, unsafe { size(self.program, &mut len) })?;
        let mut bytes = vec![0u8; len];
        if len > 0 {
            // SAFETY: the place has the size that the library has asked for.
            checked(call, unsafe { write(self.program, bytes.as_mut_ptr().cast()) })?;
        }
        Ok(bytes)
    }
}

fn without_zero(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.last() == Some(&0) {
        bytes.pop();
    }
    bytes
}

impl Drop for OpenProgram<'_> {
    fn drop(&mut self) {
        // SAFETY: the program was created by this library and is used no more. A failure leaks it.
        unsafe { (self.functions.destroy)(&mut self.program) };
    }
}
