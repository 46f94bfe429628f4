//! Libraries of products and of attention for GPUs in software, in place of NVIDIA's. Products are computed by the
//! kernels of crate `cpu`, in chains for fp32 and in the blocks of the GPU's tensor cores for bf16 and fp16; attention
//! in chains of single precision.
//!
//! There are three algorithms of products. One sums each element without a break. The others cut each sum into two or
//! four pieces, which they keep in the workspace: a workspace that two streams use at the same time is a fault, and
//! bits are not those of pleach's own kernels.

mod attention;
mod library;
mod matrices;
mod sums;

pub use attention::SoftAttention;
pub use library::SoftProducts;
