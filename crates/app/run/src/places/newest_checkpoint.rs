//! The newest checkpoint of a run, and the command that prints the report of its failure.

use std::path::Path;

use checkpoint::committed;

use crate::places::names::{CHECKPOINTS, MEMORY};

/// The newest checkpoint of the run in `run`, on the disk or in memory, by its steps.
pub fn newest_checkpoint(run: &Path) -> Option<u32> {
    let newest = |folder: &str| committed(&run.join(folder)).ok()?.first().map(|found| found.steps);
    newest(CHECKPOINTS).max(newest(MEMORY))
}

/// How a person reads the report.
pub fn shown_by(run: &Path) -> String {
    format!("`pleach blame {}` prints the report", run.display())
}
