//! The report of a failed attempt: the one schema that is written, read and shown.

use serde::{Deserialize, Serialize};

use crate::cause::Cause;
use crate::history::Entry;
use crate::part::Moment;

/// The format that this program writes.
pub const FORMAT: &str = "pleach-failure-1";

/// Why an attempt failed. `docs/failures.md` describes every field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    pub format: String,
    /// Number of the attempt in its run folder, counted from 1.
    pub attempt: u32,
    /// Nanoseconds since 1970-01-01 at the start of the attempt.
    pub started_ns: u64,
    /// The same, when the failure was written down first.
    pub failed_ns: u64,
    /// Steps of the run.
    pub steps: u32,
    /// Number of processes.
    pub processes: usize,
    /// Why.
    pub cause: Cause,
    /// The rank that failed, where it is one.
    pub rank: Option<usize>,
    /// All ranks of its process; empty where no process is to blame.
    pub ranks: Vec<usize>,
    pub process: Option<usize>,
    pub host: Option<String>,
    /// Its step, counted from 1; 0 before the first.
    pub step: u32,
    /// Whether it failed in that step or after it.
    #[serde(default)]
    pub moment: Moment,
    /// Its instruction; empty where it is not known.
    pub instruction: String,
    /// The other ranks that take part in that instruction.
    pub peers: Vec<usize>,
    /// The rank, the process or the launcher that noticed.
    pub noticed_by: String,
    /// The newest checkpoint after the failure, by steps.
    pub newest_checkpoint: Option<u32>,
    /// Every rank with its last instructions.
    pub history: Vec<RankReport>,
}

/// A rank with its last instructions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RankReport {
    pub rank: usize,
    pub process: usize,
    pub host: String,
    /// Its last instructions, the oldest first.
    pub instructions: Vec<Entry>,
}
