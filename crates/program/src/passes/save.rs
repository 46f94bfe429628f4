//! Handing state to storage.

use spec::Unit;

use crate::{Instr, Place};

/// What a rank runs after a step's program to save: one instruction per unit that it is to save. The copy of a tied table
/// on the head's rank is left out, for the embedding's rank saves it.
pub fn save_instrs(place: &Place) -> Vec<Instr> {
    let units = place.parameter_units().filter(|unit| *unit != Unit::Table || place.computes(Unit::Embedding));
    units.map(|unit| Instr::Save { unit }).collect()
}
