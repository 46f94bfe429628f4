//! Fewer registers: those that are never live at the same time become one.
//!
//! A compiler gives each value a register of its own, thousands in a large kernel. A warp's rows of all of them fit no
//! cache, and each begins with zeros. A linear scan over the text merges registers: each is taken to be live from the
//! first to the last place where it is, and takes the lowest number that is free there. One that an instruction reads
//! and one that it writes stay apart. One that may be read before it is written is alone up to there, so it is zero as
//! before.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::live::{Places, Span, spans};
use super::syntax::{Base, Function, Line, Operand, Register, Statement};

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
    let places = Places::of(function.registers);
    let numbers = Numbers::of(places, &spans(function, places));
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

/// The new number of each register.
struct Numbers {
    places: Places,
    of: Vec<usize>,
    counts: [usize; 3],
}

impl Numbers {
    /// For the registers of `spans`, each at its place.
    fn of(places: Places, spans: &[Option<Span>]) -> Numbers {
        let spans = spans.iter().enumerate().filter_map(|(at, span)| Some((span.as_ref()?, at)));
        let mut in_order: Vec<(Span, usize)> = spans.map(|(span, at)| (*span, at)).collect();
        in_order.sort_unstable_by_key(|(span, at)| (span.first, span.last, *at));
        let (mut of, mut counts) = (vec![0; places.count], [0; 3]);
        let mut free: [BinaryHeap<Reverse<usize>>; 3] = Default::default();
        let mut held: [BinaryHeap<Reverse<(usize, usize)>>; 3] = Default::default();
        for (span, at) in in_order {
            let width = places.width(at);
            let is_over = |held: &Reverse<(usize, usize)>| held.0.0 < span.first;
            while let Some(Reverse((_, number))) = held[width].peek().copied().filter(is_over) {
                held[width].pop();
                free[width].push(Reverse(number));
            }
            let number = free[width].pop().map_or(counts[width], |Reverse(number)| number);
            counts[width] = counts[width].max(number + 1);
            held[width].push(Reverse((span.last, number)));
            of[at] = number;
        }
        Numbers { places, of, counts }
    }

    fn rename(&self, register: &mut Register) {
        register.index = self.of[self.places.at(*register)];
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptx::live::{Uses, uses};
    use crate::ptx::{Width, parse};

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
        let Uses { read, written } = uses(statements.nth(statement).expect("a statement"));
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
