//! Counter-based random numbers: every value is a pure function of a key and a counter.
//!
//! Initial weights, dropout masks and the order of the data are drawn from here by *global* indices
//! (element of a parameter, token of a step, sequence of an epoch), so they do not depend on the layout,
//! on the number of threads or on the order in which they are asked for.
//!
//! The generator is Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as
//! 1, 2, 3" (SC11). [`philox4x32_10`] makes one block of four words, [`philox4x32_10_x16`] sixteen blocks
//! at once in a form that compilers turn into vector instructions; both give the same words.

mod block;
mod permutation;
mod uniform;

pub use block::{key_of_initial_weights, key_of_seed, philox4x32_10, philox4x32_10_x16};
pub use permutation::Permutation;
pub use uniform::{half_open_f32, half_open_f64, open_closed_f32, probability_threshold};
