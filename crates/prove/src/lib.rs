//! Two layouts of one run: what they promise each other, and how far apart they are.

#![forbid(unsafe_code)]

pub mod class;
pub mod distance;
pub mod models;
pub mod runner;
pub mod text;

pub use class::EqualityClass;
pub use distance::{Distance, Outcome, Tensors};
pub use runner::{Layout, ProofError, outcome_from, outcome_of, thread_engine};
pub use text::{Labels, ProofText};
