//! A failure as one process, or the launcher, knows it.

use serde::{Deserialize, Serialize};

use crate::cause::{Cause, CauseKind};

/// Whether a failure came in a step or after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Moment {
    /// The step had begun and did not end.
    #[default]
    InStep,
    /// The step was done.
    AfterStep,
}

/// The failure of a rank, as its own process saw it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnFailure {
    /// The rank that failed or, for a deadline, the rank that waited; none where all ranks saw it together.
    pub rank: Option<usize>,
    /// The rank that the failure is about, where that is another one: it was late, or left.
    pub about: Option<usize>,
    /// Step, counted from 1; 0 before the first.
    pub step: u32,
    #[serde(default)]
    pub moment: Moment,
    pub instruction: String,
    pub cause: Cause,
}

/// The failure that ended the run, as a process received it over the control channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportedFailure {
    /// The process in which it happened.
    pub process: usize,
    pub host: String,
    /// The rank, where one was named.
    pub rank: Option<usize>,
    /// The kind of its cause.
    pub kind: CauseKind,
    /// In words.
    pub text: String,
}

/// Everything that one process knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessPart {
    /// Its number.
    pub process: usize,
    pub host: String,
    /// Number that the system gave it.
    pub pid: u32,
    pub ranks: Vec<usize>,
    /// Nanoseconds since 1970-01-01.
    pub at_ns: u64,
    /// A failure of its own.
    pub own: Option<OwnFailure>,
    /// The failure that it received.
    pub heard: Option<ReportedFailure>,
}

/// The end of one process, as the program saw it that had started it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessEnd {
    /// Its number; none for a program that starts the processes itself, such as `mpiexec`.
    pub process: Option<usize>,
    /// Its name in messages.
    pub name: String,
    pub host: String,
    /// The signal that ended it.
    pub signal: Option<i32>,
    pub exit_code: Option<u8>,
    /// Its cause, where the launcher knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<CauseKind>,
    /// Whether it ended by itself: before the launcher ended all others.
    pub by_itself: bool,
}

/// Everything that a launcher, or its agent on one host, knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LauncherPart {
    /// The host that it ran on.
    pub host: String,
    /// Nanoseconds since 1970-01-01.
    pub at_ns: u64,
    /// Processes, in the order in which they ended.
    pub ends: Vec<ProcessEnd>,
    /// Processes that the system killed for lack of memory meanwhile, in the control group of the launcher.
    pub oom_kills: u64,
    pub message: String,
}
