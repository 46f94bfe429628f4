//! Products of matrices with the C interface of cuBLASLt, by the library of crate `soft_products`.

mod calls;
