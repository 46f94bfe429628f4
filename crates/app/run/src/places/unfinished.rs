//! Checkpoints without a manifest: their save or their copy has not ended, and nothing reads them.

use std::path::Path;

use checkpoint::{Found, MANIFEST, unfinished};

use crate::messages::stderr::tell;
use crate::places::names::CHECKPOINTS;

/// Names the checkpoints of the run in the folder `run` that are skipped because they have no manifest.
pub fn tell_unfinished(run: &Path) {
    // A folder that cannot be read is reported by whoever reads it.
    for found in unfinished(&run.join(CHECKPOINTS)).unwrap_or_default() {
        tell(&line(&found));
    }
}

/// The line about one.
pub fn line(found: &Found) -> String {
    skipped(&found.path.display().to_string())
}

/// The line about the checkpoint at `place`, a folder or an address.
pub fn skipped(place: &str) -> String {
    format!("{place} has no {MANIFEST}: its save or its copy has not ended; it is skipped\n")
}
