//! Gradients that are made at the end of the step.

use crate::{Instr, Pass, PassKind, RankView};

/// Puts the backward passes that add to a late sum after all others, in their order.
pub(super) fn put_off(instrs: Vec<Instr>, view: &RankView) -> Vec<Instr> {
    let is_late = |instr: &Instr| match instr.pass() {
        Some(Pass { kind: PassKind::BackwardWeight, unit: by, .. }) => view.puts_off(by),
        Some(Pass { kind: PassKind::Forward | PassKind::Recompute | PassKind::BackwardInput, .. }) | None => false,
    };
    let (late, mut instrs): (Vec<Instr>, Vec<Instr>) = instrs.into_iter().partition(is_late);
    instrs.extend(late);
    instrs
}
