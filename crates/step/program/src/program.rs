//! Everything that a rank does in a step.

use std::fmt;

use config::Unit;

use crate::{Effects, Instr, Partner, RankView};

/// The instructions of the ranks at one pipeline coordinate, in the order in which they are issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The view of the rank.
    pub view: RankView,
    /// The instructions.
    pub instrs: Vec<Instr>,
}

impl fmt::Display for Program {
    /// One instruction per line with its number; after it, as a comment, with whom it communicates and what it
    /// reads, writes and frees.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let view = &self.view;
        let units: Vec<String> = view.computing_units().map(|unit: Unit| unit.to_string()).collect();
        writeln!(f, "# pipeline rank {} of {}: {}", view.pp, view.pipeline_size, units.join(", "))?;
        for (index, instr) in self.instrs.iter().enumerate() {
            let comment = comment(*instr, view);
            match comment.is_empty() {
                true => writeln!(f, "{index:>5}  {instr}")?,
                false => writeln!(f, "{index:>5}  {:<48}# {comment}", instr.to_string())?,
            }
        }
        Ok(())
    }
}

/// The ranks with which an instruction communicates, and the values that it reads, writes and frees. A reduction names
/// the axes of its parameters.
fn comment(instr: Instr, view: &RankView) -> String {
    let effects = instr.effects(view);
    if let Instr::ReduceGrads { axes, .. } = instr {
        return format!("{axes}; {}", Effects { partner: Partner::None, ..effects });
    }
    effects.to_string()
}
