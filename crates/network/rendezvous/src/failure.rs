//! The end of a run before its last step, as all processes hear it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A failure as the process reports it in which it happened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailureReport {
    /// The rank that failed, if one did.
    pub rank: Option<usize>,
    /// Its step, counted from 1.
    pub step: Option<u32>,
    pub instruction: Option<String>,
    /// Text for the user. The report of a rank may already name rank, step and instruction in it.
    pub cause: String,
    /// The processes that print it.
    #[serde(default)]
    pub printer: Printer,
}

/// The processes that print a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Printer {
    /// All that hear of it.
    #[default]
    Every,
    /// The one that reports it, where people read its output: others add nothing.
    Reporter,
}

/// The failure that ended a run, with the process in which it happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessFailure {
    /// Number of the process.
    pub process: usize,
    pub host: String,
    pub report: FailureReport,
}

impl fmt::Display for ProcessFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ProcessFailure { process, host, report } = self;
        write!(f, "process {process} (host {host}): ")?;
        if let Some(rank) = report.rank.filter(|rank| !report.cause.starts_with(&format!("rank {rank} "))) {
            write!(f, "rank {rank} failed")?;
            if let Some(step) = report.step {
                write!(f, " in step {step}")?;
            }
            if let Some(instruction) = &report.instruction {
                write!(f, " at \"{instruction}\"")?;
            }
            f.write_str(": ")?;
        }
        f.write_str(&report.cause)
    }
}

/// A signal to stop that one process received and that holds for all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopSignal {
    /// The process that it reached.
    pub process: usize,
    pub host: String,
    /// Number of the signal.
    pub signal: i32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_process_host_rank_step_and_instruction() {
        let shown = |report: FailureReport| ProcessFailure { process: 3, host: "b".into(), report }.to_string();
        let cause = "no memory".to_string();
        let report = FailureReport { cause: cause.clone(), ..FailureReport::default() };
        assert_eq!(shown(report.clone()), "process 3 (host b): no memory");
        let of_rank = FailureReport { rank: Some(7), step: Some(2), instruction: Some("F0".into()), ..report };
        assert_eq!(shown(of_rank), "process 3 (host b): rank 7 failed in step 2 at \"F0\": no memory");
        let whole =
            FailureReport { rank: Some(7), cause: "rank 7 failed in step 2: x".into(), ..FailureReport::default() };
        assert_eq!(shown(whole), "process 3 (host b): rank 7 failed in step 2: x");
    }
}
