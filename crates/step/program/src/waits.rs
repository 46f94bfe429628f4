//! The waits of instructions on an engine whose streams run side by side: derived from effects and from the memory
//! plan, here and nowhere else. [`crate::verify`] proves the result by rules of its own.

use std::collections::BTreeMap;

use config::Overlap;
use device::Stream;

use crate::accesses::{Access, accesses};
use crate::quick_hash::ValueMap;
use crate::reached::{Order, Reached};
use crate::sizes::aligned;
use crate::{PlannedLife, Program, RankPlan};

/// For each instruction of a rank, the instructions before it, on other streams, that must have ended before it begins.
///
/// None is implied by the others: of each stream only the last is named, and only where no other wait brings it about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waits {
    of: Vec<Reached>,
    awaited: Vec<bool>,
}

impl Waits {
    fn new(of: Vec<Reached>) -> Waits {
        let mut awaited = vec![false; of.len()];
        of.iter().flat_map(Reached::each).for_each(|(_, index)| awaited[index] = true);
        Waits { of, awaited }
    }

    /// The waits of a program of `num_instrs` instructions on an engine with one queue.
    pub fn none(num_instrs: usize) -> Waits {
        Waits::new(vec![Reached::NOTHING; num_instrs])
    }

    /// The instructions that the one with this index waits for.
    pub fn of(&self, index: usize) -> impl Iterator<Item = usize> + '_ {
        self.of[index].each().map(|(_, awaited)| awaited)
    }

    /// Whether an instruction waits for the one with this index.
    pub fn is_awaited(&self, index: usize) -> bool {
        self.awaited[index]
    }

    /// All waits: who waits, and for whom.
    pub fn iter(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        (0..self.of.len()).flat_map(|index| self.of(index).map(move |awaited| (index, awaited)))
    }

    /// The same without one wait: for tests of what each is needed for.
    pub fn without(&self, (index, awaited): (usize, usize)) -> Waits {
        let mut of = self.of.clone();
        let found = of[index].each().find(|(_, other)| *other == awaited).map(|(stream, _)| stream);
        of[index] = found.map_or(of[index], |stream| of[index].without(stream));
        Waits::new(of)
    }
}

/// Waits that follow from values alone: whoever reads waits for the last writer, whoever writes for the last writer and
/// all readers since.
pub(crate) fn of_values(program: &Program, overlap: Overlap) -> Waits {
    match overlap {
        Overlap::Off => Waits::none(program.instrs.len()),
        Overlap::On => reduced(program, values(program)),
    }
}

/// Waits that follow from values, and from bytes that values have after others.
pub(crate) fn of_plan(program: &Program, plan: &RankPlan, overlap: Overlap) -> Waits {
    match overlap {
        Overlap::Off => Waits::none(program.instrs.len()),
        Overlap::On => {
            let mut needs = values(program);
            add_bytes(&mut needs, plan.lives());
            reduced(program, needs)
        }
    }
}

/// Who touched a value since it was written last.
#[derive(Clone, Copy, Default)]
struct Touched {
    written: Reached,
    read: Reached,
}

fn values(program: &Program) -> Vec<Reached> {
    let mut touched: ValueMap<Touched> = ValueMap::default();
    let mut needs = vec![Reached::NOTHING; program.instrs.len()];
    for (index, instr) in program.instrs.iter().enumerate() {
        let (stream, need) = (instr.stream(), &mut needs[index]);
        accesses(*instr, &program.view, |value, access| {
            let touched = touched.entry(value).or_default();
            need.join(&touched.written);
            match access {
                Access::Read => touched.read.add(stream, index),
                Access::Write => {
                    need.join(&touched.read);
                    *touched = Touched { written: Reached::one(stream, index), read: Reached::NOTHING };
                }
            }
        });
    }
    needs
}

/// Who writes a value first waits until the values that had its bytes before are released.
fn add_bytes(needs: &mut [Reached], lives: &[PlannedLife]) {
    let mut lives: Vec<&PlannedLife> = lives.iter().filter(|life| life.extent.len_bytes > 0).collect();
    lives.sort_by_key(|life| life.start);
    let mut occupied = Occupied::default();
    for life in lives {
        let bytes = life.extent.offset_bytes..life.extent.offset_bytes + aligned(life.extent.len_bytes);
        for before in occupied.replace(bytes, life.released) {
            needs[life.start].join(&before);
        }
    }
}

/// Who had which bytes last: disjoint ranges by their first byte.
#[derive(Default)]
pub(crate) struct Occupied {
    ranges: BTreeMap<usize, (usize, Reached)>,
}

impl Occupied {
    /// Gives `bytes` to another value, and returns when those that had a part of them are released.
    pub(crate) fn replace(&mut self, bytes: std::ops::Range<usize>, released: Reached) -> Vec<Reached> {
        let first = self.ranges.range(..=bytes.start).next_back().map_or(bytes.start, |(start, _)| *start);
        let touched: Vec<(usize, (usize, Reached))> = self
            .ranges
            .range(first..bytes.end)
            .filter(|(_, (end, _))| *end > bytes.start)
            .map(|(a, b)| (*a, *b))
            .collect();
        for (start, (end, before)) in &touched {
            self.ranges.remove(start);
            if *start < bytes.start {
                self.ranges.insert(*start, (bytes.start, *before));
            }
            if *end > bytes.end {
                self.ranges.insert(bytes.end, (*end, *before));
            }
        }
        self.ranges.insert(bytes.start, (bytes.end, released));
        touched.into_iter().map(|(_, (_, before))| before).collect()
    }
}

/// Leaves out what the order of streams and other waits bring about anyway.
fn reduced(program: &Program, needs: Vec<Reached>) -> Waits {
    let mut order = Order::new(&program.instrs);
    let mut of = Vec::with_capacity(needs.len());
    for need in needs {
        let known = order.before();
        let missing = need.each().filter(|(stream, index)| !known.has(*stream, *index));
        // The stream of the instruction itself is in order; what has the same index is the instruction.
        let own = program.instrs[of.len()].stream();
        let missing: Vec<(Stream, usize)> = missing.filter(|(stream, _)| *stream != own).collect();
        let mut waits = Reached::NOTHING;
        for (stream, index) in &missing {
            let by_another =
                |(other, awaited): &(Stream, usize)| other != stream && order.after(*awaited).has(*stream, *index);
            if !missing.iter().any(by_another) {
                waits.add(*stream, *index);
            }
        }
        order.step(waits.each().map(|(_, index)| index));
        of.push(waits);
    }
    Waits::new(of)
}
