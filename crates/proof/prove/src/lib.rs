//! Two layouts of one run: what they promise each other, and how far apart they are.

#![forbid(unsafe_code)]

mod bounds;
mod choices;
mod class;
mod copy;
mod difference;
mod distance;
mod exchange;
mod fingerprints;
mod initial;
mod jumps;
mod kinks;
mod lengths;
mod loss_bound;
mod measured;
mod message_forms;
mod observed;
mod outweighing;
mod parameter_kind;
mod promise;
mod rank_slots;
mod roundings;
mod runner;
mod skipped_steps;
mod unbounded;
mod valid_tokens;
mod verdict;
mod watch;
mod weights_hash;
mod widths;

pub use bounds::Bounds;
pub use choices::Choices;
pub use class::{EqualityClass, GradientOrder, Promised, RankOrder, gradient_order};
pub use difference::{Difference, ElementName, Found, Holding, RunFirstSteps, first_difference};
pub use distance::{Distance, Outcome, Tensors};
pub use exchange::{Exchange, SingleProcess};
pub use fingerprints::{Fingerprint, Fingerprints};
pub use loss_bound::LossBound;
pub use measured::{Measured, StepDistance};
pub use observed::{ValueBox, ValueKind, ValueName};
pub use parameter_kind::ParameterKind;
pub use promise::{Bounded, Distances, Promise};
pub use rank_slots::{MAX_RANKS, RankSlots, Taken};
pub use runner::{
    First, OutcomeSinks, ProofError, RunPart, outcome_from, outcome_of, outcome_of_run, outcome_watched, run_first,
    run_part,
};
pub use skipped_steps::parted_at;
pub use unbounded::BOUNDED_STEPS;
pub use valid_tokens::ValidTokens;
pub use verdict::{LEAST_FALL, Verdict, fall, is_noise};
pub use watch::{NoWatch, Watch};
pub use weights_hash::weights_hash;
pub use widths::{LEAST_HEAD_DIM, LEAST_HIDDEN, LEAST_NORMED_HEAD_DIM, narrow, without_bounds};
