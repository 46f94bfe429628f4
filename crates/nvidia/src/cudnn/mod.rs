//! cuDNN: causal attention by NVIDIA's own kernels, through its graphs of operations.

mod calls;
mod descriptor;
mod functions;
mod graph;
mod library;
mod passes;
mod plan;

pub use library::{AttentionError, DescribedGpu, Handle, Library, PlanFacts};

/// Declarations for a comparison with cuDNN's header, which has a wheel of its own.
pub fn header() -> crate::headers::Header {
    crate::headers::Header {
        includes: &["cudnn.h"],
        functions: functions::Functions::declarations(),
        constants: functions::constants(),
        layouts: vec![],
    }
}
