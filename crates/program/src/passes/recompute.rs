//! Computing activations again before the backward pass that needs them.

use spec::{Recompute, Unit};

use crate::{Instr, Place};

/// Puts a recomputation before each layer's backward pass of the input. It stands before the receive of the gradient
/// that a later pass adds, so that the rank computes while the gradient is still on its way.
pub(super) fn insert(instrs: Vec<Instr>, place: &Place) -> Vec<Instr> {
    match place.recompute {
        Recompute::None => instrs,
        Recompute::Full => instrs.into_iter().flat_map(|instr| [before(instr), Some(instr)]).flatten().collect(),
    }
}

fn before(instr: Instr) -> Option<Instr> {
    if let Instr::BackwardInput { unit: unit @ Unit::Layer(_), microbatch } = instr {
        Some(Instr::Recompute { unit, microbatch })
    } else {
        None
    }
}
