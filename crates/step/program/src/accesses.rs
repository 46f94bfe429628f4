//! Which values an instruction touches, and how: what two instructions must be ordered for.

use crate::effects::Gradients;
use crate::{Effects, Instr, RankView, Value};

/// How a value is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Its bytes are read. Reads need no order among each other.
    Read,
    /// Its bytes may change, or mean nothing afterwards.
    Write,
}

/// Calls `touch` for each value that `instr` touches on the rank at `view`, once for each way in which it does.
pub fn accesses(instr: Instr, view: &RankView, touch: impl FnMut(Value, Access)) {
    accesses_of(&instr.effects(view), view, touch);
}

/// The same of an instruction with these `effects`.
///
/// A value that the instruction frees counts as written: a reduction leaves partial sums in what it frees. So do the
/// gradients that the norm reads, for it rounds exact sums in place.
pub(crate) fn accesses_of(effects: &Effects, view: &RankView, mut touch: impl FnMut(Value, Access)) {
    let Effects { partner: _, reads, reads_gradients, assigns, accumulates, frees, lends } = effects;
    reads.iter().for_each(|value| touch(value, Access::Read));
    lends.iter().for_each(|value| touch(*value, Access::Read));
    match reads_gradients {
        Gradients::Unread => {}
        Gradients::All => {
            view.norm_accumulators().for_each(|(unit, by)| touch(view.sum(unit, by), Access::Write));
        }
    }
    for written in [assigns, accumulates, frees] {
        written.iter().for_each(|value| touch(value, Access::Write));
    }
}
