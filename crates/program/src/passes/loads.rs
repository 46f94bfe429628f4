//! Fetching microbatches.

use std::collections::BTreeSet;

use spec::Microbatch;

use crate::Instr;

/// Puts each microbatch's load before its first instruction on this rank, so that it is fetched while the activation is
/// still on its way.
pub(super) fn insert(instrs: Vec<Instr>) -> Vec<Instr> {
    let mut loaded: BTreeSet<Microbatch> = BTreeSet::new();
    let mut out = Vec::with_capacity(instrs.len());
    for instr in instrs {
        if let Some(microbatch) = instr.microbatch()
            && loaded.insert(microbatch)
        {
            out.push(Instr::Load { microbatch });
        }
        out.push(instr);
    }
    out
}
