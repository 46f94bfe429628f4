//! The memory of the GPU.

pub mod global;
pub mod marks;
pub mod shadow;
pub mod windows;
