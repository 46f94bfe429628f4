//! The GPUs of a run on this host.

pub mod arenas;
pub mod assignment;
pub mod devices;
pub mod kernels;
pub mod peak;
