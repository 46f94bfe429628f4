//! Whole runs on GPUs in software: the kernels of GPUs, their streams and their collectives, with the bits of runs on
//! CPUs.
//!
//! They need NVRTC, in the folder that PLEACH_CUDA names.

mod activations;
mod bits;
mod device_products;
mod experts;
mod faults;
mod graphs;
mod idle_gpu;
mod inference;
mod moves;
mod narrow;
mod nccl;
mod offload;
mod order;
mod released;
mod rig;
mod shared_sequences;
mod work_order;
