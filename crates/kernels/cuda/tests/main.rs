//! Kernels for GPUs, on the GPU in software.

mod device;
mod equal_algorithms;
mod library_attention;
mod library_products;
mod numbers;
mod operations;
mod product_timing;
mod tile_timing;
