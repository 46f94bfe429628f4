//! GPUs in software as a shared library with the C interfaces of NVIDIA's driver, cuBLASLt, cuDNN and NCCL, and of
//! NVRTC around NVRTC itself, for tests of code that opens them. Under the names of these libraries the one file is one
//! library. A file of settings next to it says how many GPUs there are: see `settings`.
//!
//! Names, types and results are those of the public headers. Each copy of the file that a process opens has GPUs of its
//! own, and ranks of NCCL are threads and processes with copies.

#![allow(non_snake_case, clippy::missing_safety_doc)]

mod code;
mod context;
mod cublaslt;
mod cudnn;
mod described;
mod devices;
mod earlier_forms;
mod graphs;
mod handles;
mod host_copies;
mod lookup;
mod memory;
mod nccl;
mod nvrtc;
mod priorities;
mod settings;
mod status;
mod streams;
mod tensor_maps;
