//! The GPU in software as a shared library with the C interface of NVIDIA's driver, for tests of code that opens one.
//!
//! It has one GPU. The names, types and results are those of the driver's public header.

#![allow(non_snake_case, clippy::missing_safety_doc)]

mod code;
mod devices;
mod host_copies;
mod lookup;
mod memory;
mod process;
mod status;
mod streams;
