//! Two layouts of one run: what they promise each other, and how far apart they are.

#![forbid(unsafe_code)]

pub mod class;
pub mod distance;

pub use class::EqualityClass;
pub use distance::{Distance, Outcome, Tensors};
