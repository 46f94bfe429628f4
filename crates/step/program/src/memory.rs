//! Where every value is in its rank's arena: state | one scratch stack | activations, transfers and gathered values.
//! Memory of the host comes before all of that, state first, then activations: a rank has one space of addresses.
//!
//! State comes first and in a fixed order, so that all programs of a run agree on it. Two values that live within the
//! step share bytes only if every use of one happens before the first write of the other. On a rank that is the order
//! of its program; a value lent to a receiver lives until the first instruction that happens after the receive.

use std::collections::BTreeMap;

use config::Overlap;
use device::Stream;

use crate::link::{Event, StepGraph, StreamOrder};
use crate::lives::{End, Life, lives};
use crate::packing::{self, Effort, Item};
use crate::rank_plan::{Category, Extent, MemoryPlan, PlannedLife, RankPlan, category, end_of, is_on_host, items};
use crate::sizes::aligned;
use crate::{Program, Sizes, Value, Violation, Waits, waits};

/// Plans the arenas of all ranks of a step, for an engine of such streams.
pub fn plan_memory(graph: &StepGraph, sizes: &Sizes, overlap: Overlap) -> MemoryPlan {
    plan_lives(graph, sizes, overlap).0
}

/// Returns the same as [`plan_memory`], with the violations of `values` and `parameters`, which come to light with the
/// lives that are planned.
pub(crate) fn plan_lives(graph: &StepGraph, sizes: &Sizes, overlap: Overlap) -> (MemoryPlan, Vec<Violation>) {
    let (effort, ends) = (EFFORT.part(graph.programs().len()), Ends::new(graph, overlap));
    let (mut ranks, mut violations) = (vec![], vec![]);
    for (rank, program) in graph.programs().iter().enumerate() {
        let (lives, own) = lives(program);
        violations.extend(own);
        ranks.push(plan_rank(unplaced(&ends, sizes, rank, lives), effort));
    }
    (MemoryPlan { ranks }, violations)
}

/// Bytes by category at the moment at which most are alive, for every pipeline rank: what a plan needs at least.
/// Nothing is placed for it, which takes most of the time of planning.
pub fn live_memory(graph: &StepGraph, sizes: &Sizes) -> Vec<Vec<(Category, usize)>> {
    let ends = Ends::new(graph, Overlap::Off);
    let programs = graph.programs().iter().enumerate();
    programs
        .map(|(rank, program)| unplaced(&ends, sizes, rank, lives(program).0).live_categories().into_iter().collect())
        .collect()
}

/// Bytes of activations in memory of the host at the moment at which most are alive, for every pipeline rank.
pub fn live_host_memory(graph: &StepGraph, sizes: &Sizes) -> Vec<usize> {
    let ends = Ends::new(graph, Overlap::Off);
    let programs = graph.programs().iter().enumerate();
    let rank = |(rank, program): (usize, &Program)| {
        let plan = unplaced(&ends, sizes, rank, lives(program).0);
        packing::largest_live_bytes(&items(plan.lives.iter().filter(|life| is_on_host(life))))
    };
    programs.map(rank).collect()
}

/// Bytes alive by category while each instruction of every pipeline rank runs: [`live_memory`] at all moments.
pub fn live_over_programs(graph: &StepGraph, sizes: &Sizes) -> Vec<BTreeMap<Category, Vec<usize>>> {
    let ends = Ends::new(graph, Overlap::Off);
    let programs = graph.programs().iter().enumerate();
    let rank = |(rank, program): (usize, &Program)| {
        unplaced(&ends, sizes, rank, lives(program).0).live_over_program(program.instrs.len())
    };
    programs.map(rank).collect()
}

/// Bytes that the rank of `program` needs at least, known without the other programs of the step: those of
/// [`live_memory`], where what is lent to a receiver counts until it is sent.
pub fn least_memory(program: &Program, sizes: &Sizes) -> usize {
    let until_sent = |life: Life| {
        let end = match life.end {
            End::After(last) | End::Lent(last) => last + 1,
            End::Caller => program.instrs.len(),
        };
        Item { start: life.birth, end, size_bytes: aligned(sizes.bytes(life.value)) }
    };
    let in_arena = lives(program).0.into_iter().filter(|life| !program.view.is_on_host(life.value));
    let items: Vec<Item> = in_arena.map(until_sent).collect();
    let Permanent { end_bytes, host_bytes, .. } = permanent(program, sizes);
    end_bytes - host_bytes + packing::largest_live_bytes(&items)
}

/// An arena this part larger than what is alive in it is good enough: one per cent.
const SLACK: usize = 100;

/// The effort of all ranks together: some hundredths of a second.
const EFFORT: Effort = Effort(12_000_000);

fn plan_rank(mut plan: RankPlan, effort: Effort) -> RankPlan {
    let (mut on_host, mut in_arena): (Vec<PlannedLife>, Vec<PlannedLife>) =
        std::mem::take(&mut plan.lives).into_iter().partition(is_on_host);
    let state_bytes = plan.host_bytes;
    let host_bytes = state_bytes + place(&mut on_host, state_bytes, 0, effort);
    let mut plan = plan.with_host_bytes(host_bytes);
    let base_bytes = plan.host_bytes + plan.live_bytes - packing::largest_live_bytes(&items(&in_arena));
    place(&mut in_arena, base_bytes, plan.live_bytes / SLACK, effort);
    plan.lives = on_host.into_iter().chain(in_arena).collect();
    plan.lives.sort_unstable_by_key(|life| (life.value, life.start));
    plan
}

/// Gives lives places from `base_bytes` on, and returns the bytes that they take together.
fn place(lives: &mut [PlannedLife], base_bytes: usize, slack_bytes: usize, effort: Effort) -> usize {
    if lives.is_empty() {
        return 0;
    }
    let packing = packing::pack(&items(&*lives), slack_bytes, effort);
    for (life, offset) in lives.iter_mut().zip(&packing.offsets) {
        life.extent.offset_bytes = base_bytes + offset;
    }
    packing.height_bytes
}

/// State and scratch in their places; lives in order of their program, and in no place yet.
fn unplaced(ends: &Ends<'_>, sizes: &Sizes, rank: usize, lives: Vec<Life>) -> RankPlan {
    let program = &ends.graph.programs()[rank];
    let Permanent { state, scratch, end_bytes, host_bytes } = permanent(program, sizes);
    let lives: Vec<PlannedLife> = lives.into_iter().map(|life| ends.planned(sizes, rank, life)).collect();
    let in_arena = lives.iter().filter(|life| !is_on_host(life));
    let live_bytes = end_bytes - host_bytes + packing::largest_live_bytes(&items(in_arena));
    RankPlan { state, lives, scratch, live_bytes, host_bytes }
}

/// The part of an arena that does not depend on lives.
struct Permanent {
    /// State in order of values.
    state: Vec<(Value, Extent)>,
    /// After the state.
    scratch: Extent,
    /// The first byte after both.
    end_bytes: usize,
    /// The first byte that is not memory of the host.
    host_bytes: usize,
}

/// State in memory of the host, state in the arena, scratch.
fn permanent(program: &Program, sizes: &Sizes) -> Permanent {
    let mut end_bytes = 0;
    let mut take = |len_bytes| {
        let extent = Extent { offset_bytes: end_bytes, len_bytes };
        end_bytes += aligned(len_bytes);
        extent
    };
    let (on_host, in_arena): (Vec<Value>, Vec<Value>) =
        program.view.state(sizes.state).into_iter().partition(|value| program.view.is_on_host(*value));
    let on_host: Vec<(Value, Extent)> = on_host.into_iter().map(|value| (value, take(sizes.bytes(value)))).collect();
    let host_bytes = on_host.last().map_or(0, |(_, extent)| end_of(*extent));
    let in_arena = in_arena.into_iter().map(|value| (value, take(sizes.bytes(value))));
    let mut state: Vec<(Value, Extent)> = on_host.into_iter().chain(in_arena).collect();
    let scratch_bytes = program.instrs.iter().map(|instr| sizes.scratch_bytes(*instr)).max().unwrap_or(0);
    let scratch = take(scratch_bytes);
    state.sort_unstable_by_key(|(value, _)| *value);
    Permanent { state, scratch, end_bytes, host_bytes }
}

/// Where lives end on an engine.
struct Ends<'a> {
    graph: &'a StepGraph,
    streams: Streams,
}

/// The order of events on an engine.
enum Streams {
    /// One queue per rank: that of the linked graph.
    One,
    /// A queue for each stream, with the waits that values need.
    Each(StreamOrder),
}

impl<'a> Ends<'a> {
    fn new(graph: &'a StepGraph, overlap: Overlap) -> Ends<'a> {
        let streams = match overlap {
            Overlap::Off => Streams::One,
            Overlap::On => {
                let waits: Vec<Waits> =
                    graph.programs().iter().map(|program| waits::of_values(program, overlap)).collect();
                Streams::Each(graph.stream_order(&waits))
            }
        };
        Ends { graph, streams }
    }

    /// A life with its end in the order of the engine, and not yet with an offset.
    fn planned(&self, sizes: &Sizes, rank: usize, life: Life) -> PlannedLife {
        let instrs = &self.graph.programs()[rank].instrs;
        let (end, released) = match life.end {
            End::After(last) => (self.after_use(rank, last + 1, &life), life.used),
            End::Caller => (instrs.len(), life.used),
            End::Lent(index) => match self.first_after_receive(Event { rank, index }) {
                Some(first) => {
                    let mut released = life.used;
                    released.add(instrs[first].stream(), first);
                    (first, released)
                }
                None => (instrs.len(), life.used),
            },
        };
        let extent = Extent { offset_bytes: 0, len_bytes: sizes.bytes(life.value) };
        let transferred = matches!(life.end, End::Lent(_)) || self.graph.is_receive(Event { rank, index: life.birth });
        let category = category(life.value, transferred);
        PlannedLife { value: life.value, start: life.birth, end, extent, category, released }
    }

    fn first_after_receive(&self, send: Event) -> Option<usize> {
        let receive = self.graph.receive_of(send)?;
        match &self.streams {
            Streams::One => self.graph.first_after(receive, send.rank),
            Streams::Each(order) => order.first_after(receive, send.rank),
        }
    }

    /// Where another stream than that of computing touches a value last, its bytes stay untouched until the unit that
    /// is computed next has been: whoever writes them then seldom waits. Activations that are copied to memory of the
    /// host stay for one turn, also where a rank has a single unit.
    /// Staged state has a distance of its own: it is fetched ahead. Memory of the host is taken again much later.
    fn after_use(&self, rank: usize, end: usize, life: &Life) -> usize {
        let instrs = &self.graph.programs()[rank].instrs;
        let is_last = life.used.last_on(Stream::Compute).is_some_and(|index| index + 1 == end);
        match self.streams {
            Streams::One => end,
            Streams::Each(_) if is_last || matches!(life.value, Value::Staged { .. } | Value::OnHost { .. }) => end,
            Streams::Each(_) if life.used.last_on(Stream::Offload).is_some_and(|index| index + 1 == end) => {
                let later = instrs.iter().enumerate().skip(end);
                let mut turns =
                    later.filter_map(|(index, instr)| Some((index, instr.pass()?.unit_passes()?))).peekable();
                let next = turns.peek().map(|(_, turn)| *turn);
                let last = turns.take_while(|(_, turn)| Some(*turn) == next).last();
                last.map_or(instrs.len(), |(index, _)| index + 1)
            }
            Streams::Each(_) => {
                let mut passes =
                    instrs.iter().enumerate().skip(end).filter_map(|(index, instr)| Some((index, instr.pass()?.unit)));
                let Some((_, next)) = passes.next() else { return instrs.len() };
                passes.find(|(_, unit)| *unit != next).map_or(instrs.len(), |(index, _)| index)
            }
        }
    }
}
