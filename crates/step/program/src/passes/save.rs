//! Handing state to storage.

use config::Unit;

use crate::{Instr, RankView};

/// The units whose state a rank saves. The copy of a tied table on the head's rank is left out, for the embedding's
/// rank saves it.
pub fn saved_units(view: &RankView) -> impl Iterator<Item = Unit> + '_ {
    view.parameter_units().filter(|unit| view.has_first_copy(*unit))
}

/// The instructions that save, after a step's program: one per unit of [`saved_units`].
pub fn save_instrs(view: &RankView) -> Vec<Instr> {
    saved_units(view).map(|unit| Instr::Save { unit }).collect()
}
