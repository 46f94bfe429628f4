//! A kernel that can be launched.

use super::layout::Parameter;
use super::operations::{Instruction, PredicateSource, Row, Slot};
use crate::ptx::Special;

/// A kernel that can be launched.
#[derive(Clone, Debug)]
pub struct Kernel {
    pub name: String,
    /// Its instructions, block after block.
    pub instructions: Vec<Instruction>,
    /// Its blocks; the first is run first.
    pub blocks: Vec<Block>,
    /// Registers of loads and stores with several elements.
    pub slots: Vec<Slot>,
    /// The lines of PTX of the instructions.
    pub sources: Vec<Source>,
    /// Predicate registers.
    pub predicates: usize,
    /// Registers of 32 bits, followed by constants.
    pub small: usize,
    /// Registers of 64 bits, followed by constants.
    pub wide: usize,
    /// Constants of 32 bits, from row `small` on.
    pub small_constants: Vec<Constant>,
    /// Constants of 64 bits, from row `wide` on.
    pub wide_constants: Vec<u64>,
    pub parameters: Vec<Parameter>,
    pub parameter_bytes: usize,
    /// Static shared memory of a block.
    pub shared_bytes: usize,
    /// Local memory of a thread.
    pub local_bytes: usize,
    /// The most threads of a block.
    pub max_threads: Option<u32>,
    /// Exactly these threads of a block.
    pub exact_threads: Option<[u32; 3]>,
    /// Whether addresses of variables outside of functions are in it.
    pub has_addresses: bool,
    /// Whether it has products of warpgroups.
    pub has_warpgroups: bool,
    /// Whether it has any operation of the asynchronous units.
    pub has_asynchronous: bool,
}

/// A register of 32 bits that no instruction writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Constant {
    /// The same in all lanes.
    Value(u32),
    /// One that the launch or the lane decides.
    Special(Special),
}

/// A line of PTX.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its number.
    pub line: u32,
    /// The instruction.
    pub text: String,
    /// The opcode with its modifiers.
    pub opcode: String,
}

/// Instructions that are run one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// The first instruction.
    pub first: usize,
    /// After the last one.
    pub end: usize,
    /// The operands.
    pub terminator: Terminator,
    /// The source of the terminator.
    pub source: u32,
    /// Lanes at a block of a lower number are run first: so all lanes of a loop leave it before one continues.
    pub order: u32,
}

/// The successors of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Terminator {
    /// The block.
    Next(usize),
    /// One block for lanes whose predicate is set, another for others.
    Branch {
        /// The predicate.
        predicate: PredicateSource,
        /// The block where it is set.
        taken: usize,
        /// The block where it is not.
        next: usize,
    },
    /// The block of a list that the index in a register names.
    Switch {
        /// The index.
        index: Row,
        /// The blocks.
        targets: Vec<usize>,
    },
    /// The end for lanes whose predicate is set; without a predicate, for all.
    Exit {
        /// The predicate, and the block of others.
        unless: Option<(PredicateSource, usize)>,
    },
}

impl Terminator {
    /// The blocks that may follow.
    pub fn successors(&self) -> Vec<usize> {
        match self {
            Terminator::Next(next) => vec![*next],
            Terminator::Branch { taken, next, .. } => vec![*taken, *next],
            Terminator::Switch { targets, .. } => targets.clone(),
            Terminator::Exit { unless: Some((_, next)) } => vec![*next],
            Terminator::Exit { unless: None } => vec![],
        }
    }
}
