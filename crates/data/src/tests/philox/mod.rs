//! Tests of crate `philox`, whose random numbers order the data.

mod block;
mod permutation;
mod uniform;
