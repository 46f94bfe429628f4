//! Fetching microbatches.

use spec::Microbatch;

use crate::Instr;

/// Puts each microbatch's load before its first instruction on this rank, so that it is fetched while the activation is
/// still on its way.
pub(super) fn insert(instrs: Vec<Instr>) -> Vec<Instr> {
    let mut loaded: Vec<Microbatch> = vec![];
    let mut out = Vec::with_capacity(instrs.len());
    for instr in instrs {
        if let Some(microbatch) = instr.microbatch()
            && !loaded.contains(&microbatch)
        {
            loaded.push(microbatch);
            out.push(Instr::Load { microbatch });
        }
        out.push(instr);
    }
    out
}
