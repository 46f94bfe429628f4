//! Gradients that are made at the end of the step.

use crate::{Instr, Pass, PassKind, Place};

/// Puts the backward passes that add to a late sum behind all others, in their order.
pub(super) fn put_off(instrs: Vec<Instr>, place: &Place) -> Vec<Instr> {
    let is_late = |instr: &Instr| match instr.pass() {
        Some(Pass { kind: PassKind::BackwardWeight, unit: by, .. }) => place.puts_off(by),
        Some(Pass { kind: PassKind::Forward | PassKind::Recompute | PassKind::BackwardInput, .. }) | None => false,
    };
    let (late, mut instrs): (Vec<Instr>, Vec<Instr>) = instrs.into_iter().partition(is_late);
    instrs.extend(late);
    instrs
}
