//! The memory of a rank while its step runs: a sum of parts that changes from instruction to instruction.

use std::collections::BTreeMap;

use device::Stream;
use program::{Instr, RankPlan};

use crate::memory::MemoryPart;

/// Bytes of one rank over the time of a step, by what they are for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryOverTime {
    /// The purposes of bytes.
    parts: Vec<MemoryPart>,
    /// The nanoseconds from which on these bytes are in use, ascending, with the bytes in the order of `parts`.
    changes: Vec<(u64, Vec<usize>)>,
}

impl MemoryOverTime {
    /// Of the bytes at these nanoseconds, which ascend. A part that a moment does not name has none.
    pub(crate) fn new(moments: impl IntoIterator<Item = (u64, BTreeMap<MemoryPart, usize>)>) -> MemoryOverTime {
        let moments: Vec<(u64, BTreeMap<MemoryPart, usize>)> = moments.into_iter().collect();
        let named = moments.iter().flat_map(|(_, bytes)| bytes.iter().filter(|(_, bytes)| **bytes > 0));
        let mut parts: Vec<MemoryPart> = named.map(|(part, _)| *part).collect();
        parts.sort_unstable();
        parts.dedup();
        let mut changes: Vec<(u64, Vec<usize>)> = vec![];
        for (ns, bytes) in moments {
            let bytes: Vec<usize> = parts.iter().map(|part| bytes.get(part).copied().unwrap_or(0)).collect();
            if changes.last().is_none_or(|(_, last)| *last != bytes) {
                changes.push((ns, bytes));
            }
        }
        MemoryOverTime { parts, changes }
    }

    /// The planned arena of a rank whose instructions started and ended at `times`.
    pub fn planned(plan: &RankPlan, instrs: &[Instr], times: &[(u64, u64)]) -> MemoryOverTime {
        let live = plan.live_over_program(instrs.len());
        let at = |index: usize| {
            let mut bytes = BTreeMap::new();
            for (category, alive) in &live {
                *bytes.entry(MemoryPart::of(*category)).or_insert(0) += alive[index];
            }
            bytes
        };
        MemoryOverTime::new(moments(instrs, times).into_iter().enumerate().map(|(index, ns)| (ns, at(index))))
    }

    /// Adds bytes that are in use throughout.
    pub(crate) fn add(&mut self, part: MemoryPart, bytes: usize) {
        self.parts.push(part);
        self.changes.iter_mut().for_each(|(_, own)| own.push(bytes));
    }

    /// The purposes of bytes, in the order of [`MemoryOverTime::changes`].
    pub fn parts(&self) -> &[MemoryPart] {
        &self.parts
    }

    /// The nanoseconds from which on other bytes are in use, ascending, and these bytes.
    pub fn changes(&self) -> &[(u64, Vec<usize>)] {
        &self.changes
    }

    /// The most bytes at once.
    pub fn peak_bytes(&self) -> usize {
        self.changes.iter().map(|(_, bytes)| bytes.iter().sum()).max().unwrap_or(0)
    }

    /// The moment with the most bytes from `from_ns` until before `to_ns`: its nanosecond and its bytes by part.
    pub(crate) fn largest(&self, from_ns: u64, to_ns: u64) -> Option<(u64, &[usize])> {
        let first = self.changes.partition_point(|(ns, _)| *ns <= from_ns).saturating_sub(1);
        let end = self.changes.partition_point(|(ns, _)| *ns < to_ns.max(from_ns + 1));
        let within = self.changes.get(first..end)?;
        let largest = within.iter().rev().max_by_key(|(_, bytes)| bytes.iter().sum::<usize>());
        largest.map(|(ns, bytes)| (*ns, bytes.as_slice()))
    }
}

/// The nanosecond from which on each instruction's values are in their places. Bytes follow the order of the program,
/// so what runs on another stream counts from when it was issued: its values have their room before the next
/// instruction that computes.
pub(crate) fn moments(instrs: &[Instr], times: &[(u64, u64)]) -> Vec<u64> {
    let mut next_ns = u64::MAX;
    let mut moments: Vec<u64> = vec![];
    for (instr, (start, _)) in instrs.iter().zip(times).rev() {
        if instr.stream() == Stream::Compute {
            next_ns = *start;
        }
        moments.push((*start).min(next_ns));
    }
    moments.reverse();
    let mut now = 0;
    for ns in &mut moments {
        now = now.max(*ns);
        *ns = now;
    }
    moments
}

#[cfg(test)]
mod tests {
    use config::{Microbatch, Unit};
    use program::GradientAxes;

    use super::*;

    #[test]
    fn moments_follow_the_program() {
        let (unit, microbatch) = (Unit::Layer(0), Microbatch(0));
        let reduce = Instr::ReduceGrads { unit, by: unit, axes: GradientAxes::new([]) };
        let instrs = [Instr::Forward { unit, microbatch }, reduce, Instr::BackwardInput { unit, microbatch }, reduce];
        // The reductions wait for a link that is busy.
        let times = [(0, 10), (40, 50), (10, 20), (50, 60)];
        assert_eq!(moments(&instrs, &times), [0, 10, 10, 50]);
    }

    #[test]
    fn the_largest_moment_of_a_slice_of_time_is_found() {
        let at = |ns: u64, activations: usize| {
            (ns, BTreeMap::from([(MemoryPart::Parameters, 8), (MemoryPart::Activations, activations)]))
        };
        let mut memory = MemoryOverTime::new([at(0, 0), at(10, 4), at(20, 4), at(30, 2), at(30, 9), at(40, 0)]);
        assert_eq!(memory.changes().len(), 5, "nothing changes at 20");
        assert_eq!(memory.largest(0, 10), Some((0, [8, 0].as_slice())));
        assert_eq!(memory.largest(15, 30), Some((10, [8, 4].as_slice())));
        assert_eq!(memory.largest(15, 31), Some((30, [8, 9].as_slice())));
        assert_eq!(memory.largest(90, 100), Some((40, [8, 0].as_slice())));
        memory.add(MemoryPart::Process, 3);
        assert_eq!((memory.peak_bytes(), memory.parts().len()), (20, 3));
    }
}
