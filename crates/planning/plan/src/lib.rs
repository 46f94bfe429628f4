//! Layouts before the cluster: what a step takes under a layout, how far that is from runs that were measured, and
//! which layout is best.
//!
//! [`known_errors`], [`machine`] and [`search`] are names of their own for what is in them; nothing has a second path.

#![forbid(unsafe_code)]

mod better_trainers;
mod filter;
mod fit;
pub mod known_errors;
pub mod machine;
mod measured_model;
mod measured_run;
mod prediction;
pub mod search;
mod table;
mod validate;

pub use better_trainers::{BetterTrainers, better_trainers};
pub use filter::{Filter, FilterError};
pub use fit::{Fitted, Open, fit};
pub use measured_run::MeasuredRun;
pub use prediction::{Prediction, PreparedStep};
pub use table::{Row, Table, TableError};
pub use validate::{Errors, Fits, Pair, PreparedRun, Pricing, Ranking, Report, Scored, scores};
