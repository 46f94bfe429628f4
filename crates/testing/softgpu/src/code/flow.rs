//! Blocks of instructions, and the order in which lanes that went different ways are run.

use super::decoder::Decoder;
use super::kernel::{Block, Terminator};
use super::modifiers::Modifiers;
use super::operations::{Instruction, Op, PredicateSource, Row};
use crate::ptx::{Function, Label, Operand, PtxError, Scalar, Statement};

/// Blocks that are being made.
#[derive(Debug)]
pub struct Flow {
    /// The place of each label.
    labels: Vec<Option<usize>>,
    ends: Vec<End>,
}

/// The end of a block: the instruction after it.
#[derive(Debug)]
struct End {
    at: usize,
    source: u32,
    jump: Jump,
}

#[derive(Debug)]
enum Jump {
    To(Label, Option<PredicateSource>),
    Switch(Row, Vec<Label>),
    Exit(Option<PredicateSource>),
}

impl Flow {
    /// No blocks yet, of a function with N labels.
    pub fn new(labels: usize) -> Flow {
        Flow { labels: vec![None; labels], ends: vec![] }
    }

    /// `label` is in front of instruction `at`.
    pub fn label(&mut self, label: Label, at: usize) {
        // Two jumps in a row have no instruction between them: each block has one that does nothing, in front of its
        // jump.
        self.labels[label.0] = Some(at);
    }

    /// All blocks of `count` instructions.
    ///
    /// # Errors
    /// A branch to a label that is not placed.
    pub fn finish(self, count: usize, function: &Function) -> Result<Vec<Block>, PtxError> {
        let mut starts: Vec<usize> = self.labels.iter().flatten().copied().collect();
        starts.extend(self.ends.iter().map(|end| end.at));
        starts.extend([0, count]);
        starts.sort_unstable();
        starts.dedup();
        // After the last instruction a function returns.
        let block_at = |at: usize| starts.binary_search(&at).unwrap_or(starts.len() - 1);
        let target = |label: &Label| match self.labels[label.0] {
            Some(at) => Ok(block_at(at)),
            None => Err(PtxError::new(function.line, format!("a label of {} is not placed", function.name))),
        };
        let mut blocks = Vec::with_capacity(starts.len());
        for (index, first) in starts.iter().copied().enumerate() {
            let end = starts.get(index + 1).copied();
            let jump = end.and_then(|end| self.ends.iter().find(|jump| jump.at == end));
            let next = index + 1;
            let terminator = match jump.map(|jump| &jump.jump) {
                None if end.is_none() => Terminator::Exit { unless: None },
                None => Terminator::Next(next),
                Some(Jump::To(label, None)) => Terminator::Next(target(label)?),
                Some(Jump::To(label, Some(predicate))) => {
                    Terminator::Branch { predicate: *predicate, taken: target(label)?, next }
                }
                Some(Jump::Switch(index, labels)) => {
                    Terminator::Switch { index: *index, targets: labels.iter().map(target).collect::<Result<_, _>>()? }
                }
                Some(Jump::Exit(None)) => Terminator::Exit { unless: None },
                Some(Jump::Exit(Some(predicate))) => Terminator::Exit { unless: Some((*predicate, next)) },
            };
            let source = jump.map_or(0, |jump| jump.source);
            blocks.push(Block { first, end: end.unwrap_or(first), terminator, source, order: 0 });
        }
        for (order, block) in super::order::order(&blocks).into_iter().enumerate() {
            blocks[block].order = order as u32;
        }
        Ok(blocks)
    }
}

impl Decoder {
    /// Decodes an instruction that ends a block; `false` for all others.
    ///
    /// # Errors
    /// A branch that this GPU does not have.
    pub fn control(
        &mut self,
        statement: &Statement,
        guard: Option<PredicateSource>,
        source: u32,
    ) -> Result<bool, PtxError> {
        let mut modifiers = Modifiers::of(statement);
        let jump = match modifiers.base() {
            "bra" => {
                modifiers.pass(&["uni"]);
                match self.operands(statement)? {
                    [Operand::Label(label)] => Jump::To(*label, guard),
                    [_] => return Err(self.error(statement, "the target must be a label of this function")),
                }
            }
            "brx" => {
                modifiers.pass(&["idx", "uni"]);
                let [index, list] = self.operands(statement)?;
                let labels = match (list, guard) {
                    (Operand::Vector(labels), None) => labels,
                    _ => return Err(modifiers.unsupported()),
                };
                let labels = labels.iter().map(|label| {
                    let Operand::Label(label) = label else {
                        return Err(self.error(statement, "a target must be a label of this function"));
                    };
                    Ok(*label)
                });
                let labels = labels.collect::<Result<Vec<_>, _>>()?;
                Jump::Switch(self.small(statement, index, Scalar::U32)?, labels)
            }
            "ret" | "exit" => {
                modifiers.pass(&["uni"]);
                Jump::Exit(guard)
            }
            _ => return Ok(false),
        };
        modifiers.finish()?;
        // A block has at least one instruction, so that every place in the code belongs to one block.
        self.kernel.instructions.push(Instruction { op: Op::Nothing, guard: None, source });
        self.flow.ends.push(End { at: self.kernel.instructions.len(), source, jump });
        Ok(true)
    }
}
