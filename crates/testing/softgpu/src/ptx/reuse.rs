//! Fewer registers: those that are never live at the same time become one.
//!
//! A compiler gives each value a register of its own, thousands in a large kernel. A warp's rows of all of them fit no
//! cache, and each begins with zeros. Registers are merged by a linear scan over the text: each is taken to be live from
//! the first to the last place where it is, and takes the lowest number that is free there. One that an instruction
//! reads and one that it writes stay apart, and one that may be read before it is written is alone up to there, so it is
//! zero as before.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

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

/// Merges the registers of `function`. One whose products of warpgroups use registers after the instruction stays as
/// it is.
pub fn merge_registers(function: &mut Function) {
    let has_products = |line: &Line| match line {
        Line::Statement(statement) => statement.parts.first().is_some_and(|base| base == "wgmma"),
        Line::Label(_) => false,
    };
    if function.body.iter().any(has_products) {
        return;
    }
    let numbers = Numbers::of(&spans(function));
    for statement in function.body.iter_mut().filter_map(statement_mut) {
        if let Some(guard) = &mut statement.guard {
            numbers.rename(&mut guard.predicate);
        }
        statement.operands.iter_mut().for_each(|operand| numbers.rename_all(operand));
    }
    function.registers = numbers.counts;
}

fn statement_mut(line: &mut Line) -> Option<&mut Statement> {
    match line {
        Line::Statement(statement) => Some(statement),
        Line::Label(_) => None,
    }
}

/// The place of a width among counts.
fn place(width: Width) -> usize {
    match width {
        Width::Predicate => 0,
        Width::Small => 1,
        Width::Wide => 2,
    }
}

/// The new number of each register.
struct Numbers {
    of: HashMap<Register, usize>,
    counts: [usize; 3],
}

impl Numbers {
    fn of(spans: &HashMap<Register, Span>) -> Numbers {
        let mut in_order: Vec<(Span, Register)> = spans.iter().map(|(register, span)| (*span, *register)).collect();
        in_order.sort_by_key(|(span, register)| (span.first, span.last, place(register.width), register.index));
        let (mut of, mut counts) = (HashMap::new(), [0; 3]);
        let mut free: [BinaryHeap<Reverse<usize>>; 3] = Default::default();
        let mut held: [BinaryHeap<Reverse<(usize, usize)>>; 3] = Default::default();
        for (span, register) in in_order {
            let width = place(register.width);
            let is_over = |held: &Reverse<(usize, usize)>| held.0.0 < span.first;
            while let Some(Reverse((_, number))) = held[width].peek().copied().filter(is_over) {
                held[width].pop();
                free[width].push(Reverse(number));
            }
            let number = free[width].pop().map_or(counts[width], |Reverse(number)| number);
            counts[width] = counts[width].max(number + 1);
            held[width].push(Reverse((span.last, number)));
            of.insert(register, number);
        }
        Numbers { of, counts }
    }

    fn rename(&self, register: &mut Register) {
        register.index = self.of.get(register).copied().unwrap_or(register.index);
    }

    fn rename_all(&self, operand: &mut Operand) {
        match operand {
            Operand::Register(register) | Operand::Not(register) => self.rename(register),
            Operand::Pair(one, other) => [one, other].into_iter().for_each(|operand| self.rename_all(operand)),
            Operand::Vector(operands) => operands.iter_mut().for_each(|operand| self.rename_all(operand)),
            Operand::Address(base, _) => self.rename_base(base),
            Operand::Box(base, coordinates) => {
                self.rename_base(base);
                coordinates.iter_mut().for_each(|operand| self.rename_all(operand));
            }
            Operand::Special(_) | Operand::Immediate(_) | Operand::Symbol(_) | Operand::Label(_) | Operand::Sink => {}
        }
    }

    fn rename_base(&self, base: &mut Base) {
        match base {
            Base::Register(register) => self.rename(register),
            Base::Symbol(_) | Base::Zero => {}
        }
    }
}

/// Lines of the body from the first to the last at which a register may be live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    first: usize,
    last: usize,
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

/// The registers that a statement reads, and those that it writes in all lanes.
fn uses(statement: &Statement) -> (Vec<Register>, Vec<Register>) {
    let has_result = statement.parts.first().is_some_and(|base| WITH_RESULT.contains(&base.as_str()));
    let (results, operands) = statement.operands.split_at(usize::from(has_result).min(statement.operands.len()));
    let (mut read, mut written) = (vec![], vec![]);
    operands.iter().for_each(|operand| registers_of(operand, &mut |register| read.push(register)));
    read.extend(statement.guard.map(|guard| guard.predicate));
    results.iter().for_each(|operand| registers_of(operand, &mut |register| written.push(register)));
    (read, written)
}

/// A set of registers.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Registers {
    /// Registers of the widths before, for each width.
    offsets: [usize; 3],
    bits: Vec<u64>,
}

impl Registers {
    /// None of `counts` registers of each width.
    fn none([predicates, small, wide]: [usize; 3]) -> Registers {
        let all = predicates + small + wide;
        Registers { offsets: [0, predicates, predicates + small], bits: vec![0; all.div_ceil(64)] }
    }

    fn at(&self, register: Register) -> usize {
        self.offsets[place(register.width)] + register.index
    }

    fn has(&self, register: Register) -> bool {
        let at = self.at(register);
        self.bits[at / 64] >> (at % 64) & 1 != 0
    }

    fn insert(&mut self, register: Register) {
        let at = self.at(register);
        self.bits[at / 64] |= 1 << (at % 64);
    }

    /// Adds those of `other` that are not in `but`; returns whether any was missing.
    fn extend(&mut self, other: &Registers, but: &Registers) -> bool {
        let mut is_new = false;
        for ((own, other), but) in self.bits.iter_mut().zip(&other.bits).zip(&but.bits) {
            let joined = *own | other & !but;
            is_new |= joined != *own;
            *own = joined;
        }
        is_new
    }

    /// The places of its members, in ascending order.
    fn places(&self) -> impl Iterator<Item = usize> {
        let members = |word: u64| (0..64).filter(move |bit| word >> bit & 1 != 0);
        self.bits.iter().enumerate().flat_map(move |(at, word)| members(*word).map(move |bit| at * 64 + bit))
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

/// The span of each register that the code names.
fn spans(function: &Function) -> HashMap<Register, Span> {
    let blocks = blocks(function);
    let mut spans = vec![None; function.registers.iter().sum()];
    let mut extend = |at: usize, line: usize| {
        let Span { first, last } = spans[at].unwrap_or(Span { first: line, last: line });
        spans[at] = Some(Span { first: first.min(line), last: last.max(line) });
    };
    for block in &blocks {
        block.live.places().for_each(|at| extend(at, block.first));
        for successor in &block.successors {
            blocks[*successor].live.places().for_each(|at| extend(at, block.end - 1));
        }
        for line in block.first..block.end {
            if let Line::Statement(statement) = &function.body[line] {
                let (read, written) = uses(statement);
                read.into_iter().chain(written).for_each(|register| extend(block.live.at(register), line));
            }
        }
    }
    let widths = [Width::Predicate, Width::Small, Width::Wide];
    let all = widths.into_iter().zip(function.registers);
    let all = all.flat_map(|(width, count)| (0..count).map(move |index| Register { width, index }));
    all.zip(spans).filter_map(|(register, span)| Some((register, span?))).collect()
}

/// The blocks of a function, with what is live at the start of each.
fn blocks(function: &Function) -> Vec<Block> {
    let mut blocks: Vec<Block> = vec![];
    let mut starts: HashMap<Label, usize> = HashMap::new();
    let mut jumps: Vec<(Vec<Label>, bool)> = vec![];
    let mut is_at_start = true;
    for (line, of) in function.body.iter().enumerate() {
        if is_at_start || matches!(of, Line::Label(_)) {
            let none = Registers::none(function.registers);
            blocks.push(Block { first: line, end: line, successors: vec![], live: none.clone(), written: none });
            jumps.push((vec![], true));
        }
        let number = blocks.len() - 1;
        let block = &mut blocks[number];
        block.end = line + 1;
        match of {
            Line::Label(label) => {
                starts.insert(*label, number);
                is_at_start = false;
            }
            Line::Statement(statement) => {
                block.run(statement);
                let base = statement.parts.first().map_or("", String::as_str);
                is_at_start = matches!(base, "bra" | "brx" | "ret" | "exit");
                if is_at_start {
                    jumps[number] = (targets(statement), statement.guard.is_some());
                }
            }
        }
    }
    let count = blocks.len();
    for (number, (labels, continues)) in jumps.into_iter().enumerate() {
        let next = (continues && number + 1 < count).then_some(number + 1);
        let named = labels.iter().filter_map(|label| starts.get(label).copied());
        blocks[number].successors = named.chain(next).collect();
    }
    propagate(&mut blocks);
    blocks
}

/// Adds what successors need until nothing is missing.
fn propagate(blocks: &mut [Block]) {
    let mut is_any = true;
    while is_any {
        is_any = false;
        for number in (0..blocks.len()).rev() {
            for at in 0..blocks[number].successors.len() {
                let needed = blocks[blocks[number].successors[at]].live.clone();
                let Block { live, written, .. } = &mut blocks[number];
                is_any |= live.extend(&needed, written);
            }
        }
    }
}

impl Block {
    /// Adds a statement at its end.
    fn run(&mut self, statement: &Statement) {
        let (read, written) = uses(statement);
        for register in read {
            if !self.written.has(register) {
                self.live.insert(register);
            }
        }
        if statement.guard.is_none() {
            written.into_iter().for_each(|register| self.written.insert(register));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptx::parse;

    /// The numbers of small registers after merging, and those before.
    fn merged(body: &str) -> (Function, usize) {
        let text = format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{{\n.reg .pred %p<9>;\n\
             .reg .b32 %r<9>;\n.reg .b64 %rd<9>;\n{body}\nret;\n}}\n"
        );
        let mut function = parse(&text).expect("PTX").kernels.remove(0);
        let before = function.registers[1];
        merge_registers(&mut function);
        (function, before)
    }

    /// The small registers of a statement after merging.
    fn small(function: &Function, statement: usize) -> Vec<usize> {
        let mut statements = function.body.iter().filter_map(|line| match line {
            Line::Statement(statement) => Some(statement),
            Line::Label(_) => None,
        });
        let (read, written) = uses(statements.nth(statement).expect("a statement"));
        let all = written.into_iter().chain(read);
        all.filter(|register| register.width == Width::Small).map(|register| register.index).collect()
    }

    #[test]
    fn values_of_a_chain_alternate_between_two_registers() {
        let (function, before) =
            merged("mov.u32 %r1, 7;\nadd.u32 %r2, %r1, 1;\nadd.u32 %r3, %r2, 1;\nadd.u32 %r4, %r3, 1;");
        assert_eq!((before, function.registers[1]), (9, 2));
        assert_eq!(small(&function, 1), [1, 0]);
        assert_eq!(small(&function, 2), [0, 1]);
    }

    #[test]
    fn a_value_that_a_loop_reads_again_keeps_its_register_to_the_end_of_the_loop() {
        let (function, _) = merged(
            "mov.u32 %r1, 7;\nmov.u32 %r2, 0;\nAGAIN:\nadd.u32 %r2, %r2, %r1;\nadd.u32 %r3, %r2, 1;\n\
             setp.lt.u32 %p1, %r3, 50;\n@%p1 bra AGAIN;\nadd.u32 %r4, %r2, 1;",
        );
        let [kept, sum, next] = [small(&function, 0)[0], small(&function, 1)[0], small(&function, 3)[0]];
        assert!(next != kept && next != sum && kept != sum);
    }

    #[test]
    fn a_register_that_may_be_read_before_it_is_written_is_alone_before() {
        let (function, _) = merged(
            "mov.u32 %r1, 7;\nsetp.eq.u32 %p1, %r1, 7;\nmov.u32 %r2, 3;\nadd.u32 %r3, %r2, %r2;\n\
             @%p1 mov.u32 %r5, 2;\nadd.u32 %r6, %r5, 1;",
        );
        let late = small(&function, 4)[0];
        for statement in 0..4 {
            assert!(!small(&function, statement).contains(&late), "statement {statement}");
        }
    }
}
