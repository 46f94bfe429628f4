//! NVRTC, the compiler of CUDA C++ as a library.
//!
//! ```no_run
//! use nvidia::Search;
//! use nvidia::nvrtc::{Cache, Compiler, Source, Target};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let compiler = Compiler::open(&Search::with(["target/cuda".into()]))?;
//! let source = Source::new("scale.cu", "extern \"C\" __global__ void scale(float *x) { x[threadIdx.x] *= 2.0f; }");
//! let target: Target = "compute_90a".parse()?; // PTX; "sm_90a" gives a CUBIN
//! let compiled = Cache::in_folder("target/kernels").compile(&compiler, &source, &target, &["--fmad=false"])?;
//! println!("{}", compiled.code.ptx().unwrap_or_default());
//! # Ok(())
//! # }
//! ```

mod cache;
mod calls;
mod compiler;
mod functions;
mod target;

pub use cache::{Cache, fingerprint};
pub use compiler::{Code, CompileError, Compiled, Compiler, Source};
pub use target::{Target, TargetError};

pub(crate) fn header() -> crate::header::Header {
    crate::header::Header {
        includes: &["nvrtc.h"],
        functions: functions::Functions::declarations(),
        constants: vec![
            ("NVRTC_SUCCESS", i64::from(functions::SUCCESS.0)),
            ("NVRTC_ERROR_COMPILATION", i64::from(functions::COMPILATION.0)),
            ("NVRTC_ERROR_INVALID_OPTION", i64::from(functions::INVALID_OPTION.0)),
        ],
        layouts: vec![],
    }
}
