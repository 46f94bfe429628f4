//! The lines of a function at which each register may be live.

use std::collections::HashMap;

use super::syntax::{Base, Function, Label, Line, Operand, Register, Statement};
use super::types::Width;

/// Opcodes whose first operand is the result. The first operand of others is taken to be read, which only keeps it live
/// for longer.
const WITH_RESULT: &[&str] = &[
    "abs",
    "activemask",
    "add",
    "and",
    "atom",
    "bfe",
    "bfi",
    "bfind",
    "brev",
    "clz",
    "copysign",
    "cos",
    "cvt",
    "cvta",
    "div",
    "elect",
    "ex2",
    "fma",
    "ld",
    "ldmatrix",
    "lg2",
    "lop3",
    "mad",
    "max",
    "min",
    "mma",
    "mov",
    "mul",
    "neg",
    "not",
    "or",
    "popc",
    "prmt",
    "rcp",
    "rem",
    "rsqrt",
    "selp",
    "setp",
    "shf",
    "shfl",
    "shl",
    "shr",
    "sin",
    "sqrt",
    "sub",
    "tanh",
    "vote",
    "xor",
];

/// The place of a width among counts.
fn place(width: Width) -> usize {
    match width {
        Width::Predicate => 0,
        Width::Small => 1,
        Width::Wide => 2,
    }
}

/// The places of registers in lists of those of all widths.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    /// Registers of the widths before, for each width.
    offsets: [usize; 3],
    pub count: usize,
}

impl Places {
    /// Of `counts` registers of each width.
    pub fn of([predicates, small, wide]: [usize; 3]) -> Places {
        Places { offsets: [0, predicates, predicates + small], count: predicates + small + wide }
    }

    /// The place of a register.
    pub fn at(self, register: Register) -> usize {
        self.offsets[place(register.width)] + register.index
    }

    /// The width of the register at a place, as a place among counts.
    pub fn width(self, at: usize) -> usize {
        self.offsets.iter().rposition(|offset| *offset <= at).unwrap_or(0)
    }
}

/// Lines of the body from the first to the last at which a register may be live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub first: usize,
    pub last: usize,
}

/// The registers of an operand.
fn registers_of(operand: &Operand, visit: &mut impl FnMut(Register)) {
    let base = |base: &Base| match base {
        Base::Register(register) => Some(*register),
        Base::Symbol(_) | Base::Zero => None,
    };
    match operand {
        Operand::Register(register) | Operand::Not(register) => visit(*register),
        Operand::Pair(one, other) => {
            registers_of(one, visit);
            registers_of(other, visit);
        }
        Operand::Vector(operands) => {
            for operand in operands {
                registers_of(operand, visit);
            }
        }
        Operand::Address(of, _) => base(of).into_iter().for_each(visit),
        Operand::Box(of, coordinates) => {
            if let Some(register) = base(of) {
                visit(register);
            }
            for operand in coordinates {
                registers_of(operand, visit);
            }
        }
        Operand::Special(_) | Operand::Immediate(_) | Operand::Symbol(_) | Operand::Label(_) | Operand::Sink => {}
    }
}

/// The registers that a statement names.
#[derive(Debug, Default)]
pub struct Uses {
    pub read: Vec<Register>,
    /// Written in all lanes that run it and for which its guard holds.
    pub written: Vec<Register>,
}

/// The registers that a statement reads and writes.
pub fn uses(statement: &Statement) -> Uses {
    let has_result = |base: &String| WITH_RESULT.binary_search(&base.as_str()).is_ok();
    let results = usize::from(statement.parts.first().is_some_and(has_result));
    let (results, operands) = statement.operands.split_at(results.min(statement.operands.len()));
    let mut uses = Uses::default();
    operands.iter().for_each(|operand| registers_of(operand, &mut |register| uses.read.push(register)));
    uses.read.extend(statement.guard.map(|guard| guard.predicate));
    results.iter().for_each(|operand| registers_of(operand, &mut |register| uses.written.push(register)));
    uses
}

/// A set of registers, a bit for each.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Registers(Vec<u64>);

impl Registers {
    /// None of `count`.
    fn none(count: usize) -> Registers {
        Registers(vec![0; count.div_ceil(64)])
    }

    fn has(&self, at: usize) -> bool {
        self.0[at / 64] >> (at % 64) & 1 != 0
    }

    fn insert(&mut self, at: usize) {
        self.0[at / 64] |= 1 << (at % 64);
    }

    /// Adds those of `other` that are not in `but`; returns whether any was missing.
    fn extend(&mut self, other: &Registers, but: &Registers) -> bool {
        let mut is_new = false;
        for ((own, other), but) in self.0.iter_mut().zip(&other.0).zip(&but.0) {
            let joined = *own | other & !but;
            is_new |= joined != *own;
            *own = joined;
        }
        is_new
    }

    /// The places of its members, in ascending order.
    fn places(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().filter(|(_, word)| **word != 0).flat_map(|(at, word)| {
            let word = *word;
            (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| at * 64 + bit)
        })
    }
}

/// Lines that are run one after the other, and the registers that they use.
struct Block {
    first: usize,
    /// After the last one.
    end: usize,
    successors: Vec<usize>,
    /// Live at its start: first those that it reads before it writes them, then those that its successors need, too.
    live: Registers,
    /// Written in all lanes that run the block.
    written: Registers,
}

/// The span of each register that the code names, at its place.
pub fn spans(function: &Function, places: Places) -> Vec<Option<Span>> {
    let uses: Vec<Uses> = function.body.iter().map(|line| statement_of(line).map(uses).unwrap_or_default()).collect();
    let blocks = blocks(&function.body, &uses, places);
    let mut spans: Vec<Option<Span>> = vec![None; places.count];
    let mut extend = |at: usize, line: usize| {
        let Span { first, last } = spans[at].unwrap_or(Span { first: line, last: line });
        spans[at] = Some(Span { first: first.min(line), last: last.max(line) });
    };
    for block in &blocks {
        block.live.places().for_each(|at| extend(at, block.first));
        for successor in &block.successors {
            blocks[*successor].live.places().for_each(|at| extend(at, block.end - 1));
        }
    }
    for (line, uses) in uses.iter().enumerate() {
        uses.read.iter().chain(&uses.written).for_each(|register| extend(places.at(*register), line));
    }
    spans
}

fn statement_of(line: &Line) -> Option<&Statement> {
    match line {
        Line::Statement(statement) => Some(statement),
        Line::Label(_) => None,
    }
}

/// The blocks of code whose lines have `uses`, with what is live at the start of each.
fn blocks(body: &[Line], uses: &[Uses], places: Places) -> Vec<Block> {
    let mut blocks: Vec<Block> = vec![];
    let mut starts: HashMap<Label, usize> = HashMap::new();
    let mut jumps: Vec<Jump> = vec![];
    let mut is_at_start = true;
    for (line, of) in body.iter().enumerate() {
        if is_at_start || matches!(of, Line::Label(_)) {
            blocks.push(Block::new(line, places));
            jumps.push(Jump { targets: vec![], continues: true });
        }
        let number = blocks.len() - 1;
        blocks[number].run(line, statement_of(of), &uses[line], places);
        is_at_start = false;
        match of {
            Line::Label(label) => {
                starts.insert(*label, number);
            }
            Line::Statement(statement) => {
                let base = statement.parts.first().map_or("", String::as_str);
                is_at_start = matches!(base, "bra" | "brx" | "ret" | "exit");
                if is_at_start {
                    jumps[number] = Jump { targets: targets(statement), continues: statement.guard.is_some() };
                }
            }
        }
    }
    let count = blocks.len();
    for (number, Jump { targets, continues }) in jumps.into_iter().enumerate() {
        let next = (continues && number + 1 < count).then_some(number + 1);
        let named = targets.iter().filter_map(|label| starts.get(label).copied());
        blocks[number].successors = named.chain(next).collect();
    }
    propagate(&mut blocks);
    blocks
}

/// The end of a block.
struct Jump {
    targets: Vec<Label>,
    /// Whether the next block may follow.
    continues: bool,
}

/// Adds what successors need until nothing is missing.
fn propagate(blocks: &mut [Block]) {
    let mut is_any = true;
    while is_any {
        is_any = false;
        for number in (0..blocks.len()).rev() {
            for at in 0..blocks[number].successors.len() {
                let successor = blocks[number].successors[at];
                // A block that follows itself needs nothing else.
                if let Ok([block, successor]) = blocks.get_disjoint_mut([number, successor]) {
                    is_any |= block.live.extend(&successor.live, &block.written);
                }
            }
        }
    }
}

impl Block {
    fn new(first: usize, places: Places) -> Block {
        let none = Registers::none(places.count);
        Block { first, end: first, successors: vec![], live: none.clone(), written: none }
    }

    /// Adds a line at its end.
    fn run(&mut self, line: usize, statement: Option<&Statement>, uses: &Uses, places: Places) {
        self.end = line + 1;
        for at in uses.read.iter().map(|register| places.at(*register)) {
            if !self.written.has(at) {
                self.live.insert(at);
            }
        }
        if statement.is_some_and(|statement| statement.guard.is_none()) {
            uses.written.iter().for_each(|register| self.written.insert(places.at(*register)));
        }
    }
}

/// The labels that a jump names.
fn targets(statement: &Statement) -> Vec<Label> {
    let mut labels = vec![];
    statement.operands.iter().for_each(|operand| labels_of(operand, &mut labels));
    labels
}

fn labels_of(operand: &Operand, labels: &mut Vec<Label>) {
    match operand {
        Operand::Label(label) => labels.push(*label),
        Operand::Vector(operands) => operands.iter().for_each(|operand| labels_of(operand, labels)),
        Operand::Register(_)
        | Operand::Not(_)
        | Operand::Pair(..)
        | Operand::Special(_)
        | Operand::Immediate(_)
        | Operand::Symbol(_)
        | Operand::Address(..)
        | Operand::Box(..)
        | Operand::Sink => {}
    }
}
