//! The rules that programs obey, one file each; what they mean is in [`crate::Rule`].

use crate::lives::lives;
use crate::{Program, Violation};

/// Violations of the rules that need no graph.
pub(crate) fn of_programs(programs: &[Program]) -> Vec<Violation> {
    programs.iter().flat_map(|program| lives(program).1).collect()
}
