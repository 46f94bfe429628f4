//! The keys of `[train]` that name an optimizer and give it its numbers.

use super::reader::{Choices, Reader, name_of};
use super::writer::Writer;
use crate::optimizer::{Muon, MuonScale, Optimizer};
use crate::problem::Problem;

const OPTIMIZER: &str = "train.optimizer";
const MOMENTUM: &str = "train.muon_momentum";
const SCALE: &str = "train.muon_scale";

/// An optimizer without its numbers.
#[derive(Clone, Copy, PartialEq)]
enum Name {
    AdamW,
    Muon,
}

const NAMES: &Choices<Name> = &[("adamw", Name::AdamW), ("muon", Name::Muon)];
const SCALES: &Choices<MuonScale> = &[("adamw", MuonScale::AdamW), ("shape", MuonScale::Shape)];

/// Reads the optimizer.
pub fn read(reader: &mut Reader) -> Optimizer {
    let name = reader.choice(OPTIMIZER, NAMES, Name::AdamW);
    let momentum = reader.number(MOMENTUM, 0.95);
    let scale = reader.choice(SCALE, SCALES, MuonScale::AdamW);
    match name {
        Name::AdamW => {
            for key in [MOMENTUM, SCALE] {
                if reader.is_set(key) {
                    let rule = format!("has no effect without {OPTIMIZER} = \"muon\"");
                    reader.report(Problem::of_key(key, rule, "leave it out"));
                }
            }
            Optimizer::AdamW
        }
        Name::Muon => Optimizer::Muon(Muon { momentum, scale }),
    }
}

/// Writes the keys that have a meaning for this optimizer.
pub fn write(optimizer: Optimizer, writer: &mut Writer) {
    match optimizer {
        Optimizer::AdamW => writer.text("optimizer", name_of(NAMES, Name::AdamW)),
        Optimizer::Muon(Muon { momentum, scale }) => {
            writer.text("optimizer", name_of(NAMES, Name::Muon));
            writer.number("muon_momentum", momentum);
            writer.text("muon_scale", name_of(SCALES, scale));
        }
    }
}
