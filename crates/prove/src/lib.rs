//! Two layouts of one run: what they promise each other, and how far apart they are.

#![forbid(unsafe_code)]

pub mod arena_use;
pub mod cases;
pub mod class;
pub mod difference;
pub mod distance;
pub mod faulty_disk;
pub mod fingerprints;
pub mod golden;
pub mod intercepted;
pub mod matrix;
pub mod models;
pub mod observed;
pub mod page;
pub mod poison;
pub mod promise;
pub mod rank_slots;
pub mod reliability;
pub mod replicas;
pub mod results;
pub mod resumed;
pub mod runner;
pub mod sample;
pub mod survey;
pub mod text;
pub mod verdict;
pub mod watch;
pub mod weights_hash;
pub mod wrapped_engine;

pub use cases::{Case, Degrees, Family, Manner};
pub use class::EqualityClass;
pub use difference::{Difference, Found, first_difference};
pub use distance::{Distance, Outcome, Tensors};
pub use promise::Promise;
pub use rank_slots::RankSlots;
pub use replicas::Replicas;
pub use runner::{
    Layout, ProofError, outcome_from, outcome_of, outcome_of_first, outcome_watched, run_first, thread_engine,
};
pub use text::{Labels, ProofText};
pub use verdict::{Bounds, Verdict};
pub use watch::Watch;
pub use weights_hash::weights_hash;
pub use wrapped_engine::WrappedEngine;
