//! Silent corruption: state that changes by itself, and computations that are wrong once.

pub mod rechecked_device;
pub(crate) mod state_hashes;
