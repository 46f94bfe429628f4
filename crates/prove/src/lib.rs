//! Two layouts of one run: what they promise each other, and how far apart they are.

#![forbid(unsafe_code)]

pub mod class;
pub mod distance;
pub mod intercepted;
pub mod models;
pub mod poison;
pub mod replicas;
pub mod runner;
pub mod text;
pub mod watch;
pub mod wrapped_engine;

pub use class::EqualityClass;
pub use distance::{Distance, Outcome, Tensors};
pub use replicas::Replicas;
pub use runner::{Layout, ProofError, outcome_from, outcome_of, outcome_watched, thread_engine};
pub use text::{Labels, ProofText};
pub use watch::Watch;
pub use wrapped_engine::WrappedEngine;
