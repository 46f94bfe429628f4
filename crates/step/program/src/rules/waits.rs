//! `waits`: on an engine with a queue for each stream, conflicting accesses are ordered.

use crate::accesses::{Access, accesses};
use crate::quick_hash::QuickMap;
use crate::reached::{Order, Reached};
use crate::sizes::aligned;
use crate::waits::Occupied;
use crate::{Event, MemoryPlan, PlannedLife, Program, RankPlan, Rule, StepGraph, Value, Violation, Waits};

use super::on_rank;

/// Pairs of instructions that conflict and are in no order, of all pipeline ranks.
///
/// The order is that of streams, waits, sends and collectives; it is found here from `waits` alone, without a look at
/// why each is there.
pub fn waits(graph: &StepGraph, plan: &MemoryPlan, waits: &[Waits]) -> Vec<Violation> {
    let order = graph.stream_order(waits);
    let mut violations = vec![];
    for ((program, plan), waits) in graph.programs().iter().zip(&plan.ranks).zip(waits) {
        let check = Check::new(program, waits);
        violations.extend(check.values());
        violations.extend(check.bytes(plan));
        // A lent value is read on another rank: the receive must have happened.
        let lent = plan.lives().iter().filter_map(|life| {
            let send = Event { rank: program.view.pp, index: lent_by(program, life)? };
            let first = graph.receive_of(send).and_then(|receive| order.first_after(receive, send.rank))?;
            (life.end < first).then(|| {
                let message = format!(
                    "the {} is lent by instruction {} and may be overwritten from instruction {}; its receive is known to \
                     have happened from instruction {first} on",
                    life.value, send.index, life.end
                );
                on_rank(program, Rule::Waits, &message)
            })
        });
        violations.extend(lent);
    }
    violations
}

/// The send that lends the value in this life.
fn lent_by(program: &Program, life: &PlannedLife) -> Option<usize> {
    let lends = |index: &usize| program.instrs[*index].effects(&program.view).lends == Some(life.value);
    life.released.each().map(|(_, index)| index).filter(|index| *index >= life.start).find(lends)
}

struct Check<'a> {
    program: &'a Program,
    /// The order before each instruction begins.
    before: Vec<Reached>,
}

/// The last accesses of a value: who wrote, and who touched it in any way.
#[derive(Clone, Copy, Default)]
struct Last {
    written: Reached,
    touched: Reached,
}

impl<'a> Check<'a> {
    fn new(program: &'a Program, waits: &Waits) -> Check<'a> {
        let mut order = Order::new(&program.instrs);
        let mut before = Vec::with_capacity(program.instrs.len());
        for index in 0..program.instrs.len() {
            let mut known = order.before();
            waits.of(index).for_each(|awaited| known.join(&order.after(awaited)));
            before.push(known);
            order.step(waits.of(index));
        }
        Check { program, before }
    }

    /// The instructions of `others` that are in no order with the one of this index, which comes after them in the
    /// program.
    fn unordered(&self, index: usize, others: &Reached) -> Option<usize> {
        let own = self.program.instrs[index].stream();
        let mut missing =
            others.each().filter(|(stream, other)| *stream != own && !self.before[index].has(*stream, *other));
        missing.next().map(|(_, other)| other)
    }

    fn violation(&self, index: usize, other: usize, over: &str) -> Violation {
        let instrs = &self.program.instrs;
        let message = format!(
            "instruction {index}, `{}`, does not wait for instruction {other}, `{}`, over {over}",
            instrs[index], instrs[other]
        );
        on_rank(self.program, Rule::Waits, &message)
    }

    /// Conflicts over values. Of each stream the last access stands for those before it.
    fn values(&self) -> Vec<Violation> {
        let mut last: QuickMap<Value, Last> = QuickMap::default();
        let mut violations = vec![];
        for (index, instr) in self.program.instrs.iter().enumerate() {
            accesses(*instr, &self.program.view, |value, access| {
                let last = last.entry(value).or_default();
                let others = match access {
                    Access::Read => last.written,
                    Access::Write => last.touched,
                };
                if let Some(other) = self.unordered(index, &others) {
                    violations.push(self.violation(index, other, &format!("the {value}")));
                }
                last.touched.add(instr.stream(), index);
                if access == Access::Write {
                    last.written.add(instr.stream(), index);
                }
            });
        }
        violations
    }

    /// Conflicts over bytes: the first write of a value comes after every access of the values that had its bytes last.
    /// Those before them come before by the same rule, and the other accesses of the value after its first write, by
    /// [`Check::values`].
    fn bytes(&self, plan: &RankPlan) -> Vec<Violation> {
        let mut lives: Vec<&PlannedLife> = plan.lives().iter().filter(|life| life.extent.len_bytes > 0).collect();
        lives.sort_by_key(|life| life.start);
        let mut occupied = Occupied::default();
        let mut violations = vec![];
        for life in lives {
            let start_bytes = life.extent.offset_bytes;
            let bytes = start_bytes..start_bytes + aligned(life.extent.len_bytes);
            for before in occupied.replace(bytes, life.released) {
                if let Some(index) = self.unordered(life.start, &before) {
                    violations.push(self.violation(
                        life.start,
                        index,
                        &format!("bytes that the {} takes over", life.value),
                    ));
                }
            }
        }
        violations
    }
}
