//! A library of products for GPUs in software, in place of NVIDIA's: computed by the kernels of crate `cpu`, in chains
//! for fp32 and in the blocks of the GPU's tensor cores for bf16 and fp16.
//!
//! There are three algorithms. One sums each element without a break. The others cut each sum into two or four pieces,
//! which they keep in the workspace: a workspace that two streams use at the same time is a fault, and bits are not
//! those of pleach's own kernels.

mod library;
mod matrices;
mod sums;

pub use library::SoftProducts;
