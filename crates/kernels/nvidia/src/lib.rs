//! NVIDIA's libraries, opened at run time: no header, no compiler, nothing linked.
//!
//! - [`driver`] is the driver of the GPUs, as the traits of crate `gpu`.
//! - [`nvrtc`] compiles CUDA C++ to PTX and CUBIN.
//! - [`cublaslt`] multiplies matrices, [`cudnn`] computes attention, [`nccl`] moves and adds between GPUs.
//! - [`headers`] has all declarations as C++, which a test compiles against NVIDIA's own headers.
//! - [`Search`] finds a library: given files and folders first, the system's loader last.

pub mod cublaslt;
pub mod cudnn;
pub mod driver;
mod header;
pub mod headers;
mod library;
pub mod nccl;
pub mod nvrtc;
mod search;
mod table;

pub use library::LibraryError;
pub use search::{Found, Search};

// Tests name the crate as its users do.
#[cfg(test)]
extern crate self as nvidia;
#[cfg(test)]
mod tests;
