//! The contents of a rank's memory at its peak: as pleach plans it, or with the values that another trainer keeps.

use std::collections::BTreeMap;
use std::fmt;

use cluster::{Software, TrainerMemory, WeightGradients};
use config::{Unit, UnitClass};
use program::{
    Category, Footprint, Footprints, Program, Sizes, StateBytes, StepGraph, StepTimes, Value, least_memory,
    live_host_memory, live_memory, live_over_programs,
};

use crate::kept_beyond::KeptBeyond;
use crate::memory_over_time::{MemoryOverTime, moments};
use crate::recorded::RecordedUnits;

/// The purpose of bytes of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemoryPart {
    Parameters,
    /// Sums of gradients, and gradients before they are reduced.
    Gradients,
    /// Master weights and moments.
    Optimizer,
    /// Parameters that are gathered from shards.
    Gathered,
    /// Values that the forward pass keeps, and gradients of it.
    Activations,
    Logits,
    /// Buffers of sends and receives.
    Communication,
    /// Scratch memory of single instructions.
    Scratch,
    /// Constants and sums.
    Constants,
    /// Unused memory of the allocator, and memory of the process outside of it.
    Process,
}

impl MemoryPart {
    pub(crate) fn of(category: Category) -> MemoryPart {
        match category {
            Category::Parameters => MemoryPart::Parameters,
            Category::Gradients | Category::Unreduced => MemoryPart::Gradients,
            Category::Optimizer | Category::Staged => MemoryPart::Optimizer,
            Category::Gathered => MemoryPart::Gathered,
            Category::Activations | Category::Batches | Category::Cache => MemoryPart::Activations,
            Category::Transfers => MemoryPart::Communication,
            Category::Scratch => MemoryPart::Scratch,
            Category::Constants | Category::Gaps => MemoryPart::Constants,
        }
    }
}

impl fmt::Display for MemoryPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MemoryPart::Parameters => "parameters",
            MemoryPart::Gradients => "gradients",
            MemoryPart::Optimizer => "optimizer",
            MemoryPart::Gathered => "gathered parameters",
            MemoryPart::Activations => "activations",
            MemoryPart::Logits => "logits",
            MemoryPart::Communication => "communication buffers",
            MemoryPart::Scratch => "scratch",
            MemoryPart::Constants => "constants",
            MemoryPart::Process => "allocator and process",
        })
    }
}

/// Bytes of one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankMemory {
    /// When most are in use, by what they are for.
    pub parts: BTreeMap<MemoryPart, usize>,
    /// Between two steps: parameters, sums of gradients, optimizer, constants.
    pub resident_bytes: usize,
    /// Memory of the host: optimizer state and activations that are offloaded.
    pub host_bytes: usize,
}

impl RankMemory {
    /// Bytes in use at the peak, which a trainer's allocator calls allocated.
    pub fn allocated_bytes(&self) -> usize {
        self.parts.iter().filter(|(part, _)| **part != MemoryPart::Process).map(|(_, bytes)| bytes).sum()
    }

    /// Bytes that the accelerator must have.
    pub fn occupied_bytes(&self) -> usize {
        self.parts.values().sum()
    }
}

/// The memory of every pipeline rank of a step with these `sizes`, which are pleach's.
pub fn memory(graph: &StepGraph, sizes: &Sizes, units: &RecordedUnits, software: Option<&Software>) -> Vec<RankMemory> {
    let sizes = &software.map_or_else(|| sizes.clone(), |software| trainer_sizes(sizes, units, software));
    let kept_gradients = kept_gradients(units);
    let ranks = live_memory(graph, sizes).into_iter().zip(live_host_memory(graph, sizes)).zip(graph.programs());
    let rank = ranks.map(|((categories, activations), program)| {
        let parts = parts_of(categories, program, units);
        let state = program.view.state(sizes.state);
        let (on_host, resident): (Vec<Value>, Vec<Value>) =
            state.into_iter().partition(|value| program.view.is_on_host(*value));
        let sum = |values: Vec<Value>| values.into_iter().map(|value| sizes.bytes(value)).sum::<usize>();
        let host_bytes = sum(on_host) + activations;
        let mut memory = RankMemory { parts, resident_bytes: kept_gradients + sum(resident), host_bytes };
        if let Some(software) = software {
            let process = process_bytes(memory.allocated_bytes(), software);
            memory.parts.insert(MemoryPart::Process, process);
        }
        memory
    });
    rank.collect()
}

/// Bytes of a rank at one moment by what they are for, out of those that its program keeps by category.
fn parts_of(
    categories: impl IntoIterator<Item = (Category, usize)>,
    program: &Program,
    units: &RecordedUnits,
) -> BTreeMap<MemoryPart, usize> {
    let mut parts = BTreeMap::new();
    for (category, bytes) in categories.into_iter().filter(|(_, bytes)| *bytes > 0) {
        *parts.entry(MemoryPart::of(category)).or_insert(0) += bytes;
    }
    if program.view.holds(Unit::Head) {
        let scratch = parts.entry(MemoryPart::Scratch).or_insert(0);
        let logits = units.units[UnitClass::Head].kept.logits;
        *scratch -= logits;
        parts.insert(MemoryPart::Logits, logits);
    }
    *parts.entry(MemoryPart::Gradients).or_insert(0) += kept_gradients(units);
    parts
}

/// Bytes of a rank of every stage while a step with these `times` runs: at its peak those of [`memory`].
pub fn memory_over_time(
    graph: &StepGraph,
    times: &StepTimes,
    sizes: &Sizes,
    units: &RecordedUnits,
    software: Option<&Software>,
) -> Vec<MemoryOverTime> {
    let sizes = &software.map_or_else(|| sizes.clone(), |software| trainer_sizes(sizes, units, software));
    let live = live_over_programs(graph, sizes);
    let ranks = graph.programs().iter().zip(&times.ranks).zip(live);
    let rank = ranks.map(|((program, times), live)| {
        let moments = moments(&program.instrs, times);
        let parts_at =
            |index: usize| parts_of(live.iter().map(|(category, bytes)| (*category, bytes[index])), program, units);
        let mut memory = MemoryOverTime::new(moments.into_iter().enumerate().map(|(index, ns)| (ns, parts_at(index))));
        if let Some(software) = software {
            memory.add(MemoryPart::Process, process_bytes(memory.peak_bytes(), software));
        }
        memory
    });
    rank.collect()
}

/// Bytes that a rank occupies at least, known from its program alone: those of [`memory`], where what is lent to a
/// receiver counts until it is sent.
pub fn least_bytes(program: &Program, sizes: &Sizes, units: &RecordedUnits, software: Option<&Software>) -> usize {
    let sizes = &software.map_or_else(|| sizes.clone(), |software| trainer_sizes(sizes, units, software));
    let allocated = least_memory(program, sizes) + kept_gradients(units);
    allocated + software.map_or(0, |software| process_bytes(allocated, software))
}

/// Bytes of one gradient of each shape of weight in the model's layers, where those are kept.
fn kept_gradients(units: &RecordedUnits) -> usize {
    let of_layers = units.units.of_layers().iter();
    of_layers.flat_map(|unit| &unit.kept.weight_gradients).collect::<BTreeMap<_, _>>().into_values().sum()
}

/// Unused memory of a trainer's allocator, and memory of its process outside of it.
fn process_bytes(allocated_bytes: usize, software: &Software) -> usize {
    let TrainerMemory { unused_share, process_bytes, .. } = software.memory;
    (allocated_bytes as f64 * unused_share + process_bytes) as usize
}

/// Sizes of the values of a step as `software` would keep them.
fn trainer_sizes(sizes: &Sizes, units: &RecordedUnits, software: &Software) -> Sizes {
    let scaled = |bytes: usize, by: f64| (bytes as f64 * by) as usize;
    // As many bytes as the parameters that they are the gradients of, which no shard of sums makes less.
    let beside_sum = |own: StateBytes| match software.memory.weight_gradients {
        WeightGradients::Kept => own.gathered,
        WeightGradients::Freed | WeightGradients::KeptPerShape => 0,
    };
    let state = |own: StateBytes| StateBytes {
        unreduced: scaled(own.unreduced, software.gradient_bytes / 4.0),
        accumulator: scaled(own.accumulator, software.gradient_bytes / 4.0) + beside_sum(own),
        moment: scaled(own.moment, software.memory.optimizer_bytes / 12.0),
        second_moment: scaled(own.second_moment, software.memory.optimizer_bytes / 12.0),
        ..own
    };
    let footprints = Footprints {
        units: sizes.footprints.units.map(|class, own| trainer_footprint(*own, &units.units[class].kept)),
        ..sizes.footprints
    };
    Sizes { footprints, units: sizes.units.map(|_, own| state(*own)), state: sizes.state }
}

/// Nodes of a backward graph compute both gradients at once, so that of a layer only the widest wait for each other.
fn trainer_footprint(own: Footprint, kept: &KeptBeyond) -> Footprint {
    let has_core = own.core_until_weight_bytes > 0;
    let (saved, core) = if has_core { (kept.core_output, kept.core) } else { (kept.core, 0) };
    Footprint {
        saved_until_weight_bytes: own.saved_until_weight_bytes + kept.saved + saved,
        core_until_weight_bytes: own.core_until_weight_bytes + core - if has_core { kept.core_output } else { 0 },
        pending_bytes: kept.pending,
        scratch_bytes: (own.scratch_bytes - kept.chunk + kept.logits).max(kept.borrowed),
        ..own
    }
}
