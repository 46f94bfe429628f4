//! Fetching microbatches.

use crate::{Instr, RankView};

/// Puts each microbatch's load before its first instruction on this rank, so that it is fetched while the activation is
/// still on its way.
pub(super) fn insert(instrs: Vec<Instr>, view: &RankView) -> Vec<Instr> {
    let mut loaded = vec![false; view.num_microbatches];
    let mut out = Vec::with_capacity(instrs.len());
    for instr in instrs {
        if let Some(microbatch) = instr.microbatch()
            && !std::mem::replace(&mut loaded[microbatch.0 as usize], true)
        {
            out.push(Instr::Load { microbatch });
        }
        out.push(instr);
    }
    out
}
