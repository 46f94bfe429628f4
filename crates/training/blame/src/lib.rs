//! Why a run failed: the last instructions of every rank, what each process saw, and one report.
//!
//! While a run trains, each rank keeps its last instructions in a [`Ring`]: a small file that it maps, so the ring
//! outlives the process, however that ends. A process that fails adds a [`ProcessPart`], and `pleach launch` adds the
//! exit codes and signals that it saw. [`Attempt::report`] joins all parts in one [`Report`].

#![deny(unsafe_code)]

mod advice;
mod attempt;
mod cause;
mod clock;
mod date;
mod entry_words;
mod history;
mod judge;
mod part;
mod report;
mod ring;
mod text;
mod waits;

pub use attempt::{Attempt, AttemptError, Attempts, FAILURES};
pub use cause::{Cause, CauseKind};
pub use clock::now_ns;
pub use history::{Entry, RankHistory};
pub use part::{LauncherPart, Moment, OwnFailure, ProcessEnd, ProcessPart, ReportedFailure};
pub use report::{FORMAT, RankReport, Report};
pub use ring::{Peers, RING_ENTRIES, Ring, RingHeader};

// Tests name the crate as its users do.
#[cfg(test)]
extern crate self as blame;
#[cfg(test)]
mod tests;
