//! Products of matrices with the C interface of cuBLASLt, computed by the kernels of crate `cpu`: in chains for fp32,
//! in the blocks of the GPU's tensor cores for bf16. Matrices are by rows and without gaps; there is one algorithm,
//! which does not cut sums.

mod calls;
mod product;

pub use calls::Descriptions;
