//! The memory of the GPU.

pub mod global;
pub mod shadow;
pub mod windows;
