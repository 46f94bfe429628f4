//! Two layouts of one run: what they promise each other, and how far apart they are.

#![forbid(unsafe_code)]

pub mod arena_use;
pub mod cases;
pub mod class;
pub mod distance;
pub mod golden;
pub mod intercepted;
pub mod matrix;
pub mod models;
pub mod poison;
pub mod rank_slots;
pub mod replicas;
pub mod results;
pub mod runner;
pub mod survey;
pub mod text;
pub mod verdict;
pub mod watch;
pub mod wrapped_engine;

pub use cases::{Case, Degrees, Family, Manner};
pub use class::EqualityClass;
pub use distance::{Distance, Outcome, Tensors};
pub use rank_slots::RankSlots;
pub use replicas::Replicas;
pub use runner::{Layout, ProofError, outcome_from, outcome_of, outcome_watched, thread_engine};
pub use text::{Labels, ProofText};
pub use verdict::{Bounds, Verdict};
pub use watch::Watch;
pub use wrapped_engine::WrappedEngine;
