//! The GPU in software as a shared library with the C interfaces of NVIDIA's driver, cuBLASLt and NCCL, for tests of
//! code that opens them. Under the names of three libraries the one file is one library, with one GPU.
//!
//! Names, types and results are those of the public headers. Each copy of the file that a process opens has a GPU of
//! its own, and ranks of NCCL are threads and processes with copies.

#![allow(non_snake_case, clippy::missing_safety_doc)]

mod code;
mod cublaslt;
mod described;
mod devices;
mod graphs;
mod handles;
mod host_copies;
mod lookup;
mod memory;
mod nccl;
mod process;
mod status;
mod streams;
mod tensor_maps;
