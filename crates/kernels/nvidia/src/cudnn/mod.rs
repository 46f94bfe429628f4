//! cuDNN: causal attention by NVIDIA's own kernels, through its graphs of operations.

mod calls;
mod descriptor;
mod error;
mod functions;
mod graph;
mod library;
mod passes;
mod plan;

pub use error::{AttentionError, PlanFacts};
pub use library::{DescribedGpu, Handle, Library};

/// Declarations for a comparison with cuDNN's header, which has a wheel of its own.
pub fn header() -> crate::header::Header {
    crate::header::Header {
        includes: &["cudnn.h"],
        functions: functions::Functions::declarations(),
        constants: functions::constants(),
        layouts: vec![],
    }
}
