//! Computing activations again before the backward pass that needs them.

use config::LayerRecompute;

use crate::{Instr, RankView};

/// Puts a recomputation before the backward pass of the input of each layer that needs one. It is before the receive of
/// the gradient that a later pass adds, so that the rank computes while the gradient is still on its way.
pub(super) fn insert(instrs: Vec<Instr>, view: &RankView) -> Vec<Instr> {
    instrs.into_iter().flat_map(|instr| [before(instr, view), Some(instr)]).flatten().collect()
}

fn before(instr: Instr, view: &RankView) -> Option<Instr> {
    let Instr::BackwardInput { unit, microbatch } = instr else { return None };
    match view.recomputes(unit) {
        LayerRecompute::Nothing => None,
        LayerRecompute::Core | LayerRecompute::Everything(_) => Some(Instr::Recompute { unit, microbatch }),
    }
}
