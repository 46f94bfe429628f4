//! (crate cpu)
mod aligned;
pub mod attention;
pub mod gemm;
pub mod instruction_set;
pub mod lanes;
pub mod math;
pub mod meter;
pub mod view;
