//! Causal attention with the C interface of cuDNN, by the library of crate `soft_products`.

mod calls;
mod descriptors;
mod passes;
