//! The places of a rank's values, and the bytes of each purpose.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use crate::packing::{self, Item};
use crate::sizes::aligned;
use crate::{Reached, Value};

/// A part of an arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// First byte, a multiple of [`device::ALIGN_BYTES`].
    pub offset_bytes: usize,
    /// Length as the value needs it; the room is rounded up to a multiple of that.
    pub len_bytes: usize,
}

/// A value's life and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedLife {
    pub value: Value,
    /// The instruction that writes it first.
    pub start: usize,
    /// The first instruction that may overwrite it.
    pub end: usize,
    /// Where it is.
    pub extent: Extent,
    /// The purpose that it counts for.
    pub category: Category,
    /// The instructions that must have ended before its bytes may be written for another value: the last instruction
    /// of each stream that touches it and, where
    /// it was lent, the first one that happens after the receive.
    pub released: Reached,
}

/// The purpose of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Category {
    /// Parameters.
    Parameters,
    /// Sums of gradients.
    Gradients,
    /// Moments of the optimizer, and its weights where they are not the parameters.
    Optimizer,
    /// Optimizer state on its way from memory of the host and back.
    Staged,
    /// Parameters that are gathered from shards.
    Gathered,
    /// Gradients that are whole until they are reduced to shards.
    Unreduced,
    /// Keys and values of the tokens before.
    Cache,
    /// Constants and sums.
    Constants,
    /// Tokens, labels, positions and masks.
    Batches,
    /// Saved activations, outputs, gradients of outputs, pending.
    Activations,
    /// Outputs and their gradients that were received or are sent.
    Transfers,
    /// Temporary memory of single instructions.
    Scratch,
    /// Gaps between values at the peak.
    Gaps,
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Category::Parameters => "parameters",
            Category::Gradients => "gradients",
            Category::Optimizer => "optimizer",
            Category::Staged => "staged state",
            Category::Gathered => "gathered parameters",
            Category::Unreduced => "unreduced gradients",
            Category::Cache => "cache",
            Category::Constants => "constants",
            Category::Batches => "batches",
            Category::Activations => "activations",
            Category::Transfers => "transfers",
            Category::Scratch => "scratch",
            Category::Gaps => "gaps",
        })
    }
}

/// The arena of one pipeline rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankPlan {
    /// State in order of values.
    pub(crate) state: Vec<(Value, Extent)>,
    /// Lives in order of values, then of time.
    pub(crate) lives: Vec<PlannedLife>,
    pub(crate) scratch: Extent,
    pub(crate) live_bytes: usize,
    /// Addresses below this are memory of the host.
    pub(crate) host_bytes: usize,
}

/// The arenas of all pipeline ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// By pipeline index.
    pub ranks: Vec<RankPlan>,
}

/// Whether a life is in memory of the host. State there has no life.
pub(crate) fn is_on_host(life: &PlannedLife) -> bool {
    matches!(life.value, Value::OnHost { .. })
}

pub(crate) fn items<'a>(lives: impl IntoIterator<Item = &'a PlannedLife>) -> Vec<Item> {
    let item =
        |life: &PlannedLife| Item { start: life.start, end: life.end, size_bytes: aligned(life.extent.len_bytes) };
    lives.into_iter().map(item).collect()
}

pub(crate) fn category(value: Value, transferred: bool) -> Category {
    match (value, transferred) {
        (Value::Batch(_), _) => Category::Batches,
        (Value::Gathered(_), _) => Category::Gathered,
        (Value::Unreduced { .. }, _) => Category::Unreduced,
        (Value::Reduced { .. }, _) => Category::Gradients,
        (Value::Staged { .. }, _) => Category::Staged,
        (_, true) => Category::Transfers,
        (_, false) => Category::Activations,
    }
}

impl RankPlan {
    /// Where `value` is while instruction `at` runs: state always, other values while they live. `None` if it does not
    /// live then.
    pub fn extent(&self, value: Value, at: usize) -> Option<Extent> {
        if value.is_state() {
            return self.extent_of_state(value);
        }
        let after = self.lives.partition_point(|life| (life.value, life.start) <= (value, at));
        let life = self.lives[..after].last()?;
        (life.value == value && at < life.end).then_some(life.extent)
    }

    /// The first place of a value that lives within the step, whenever that is.
    pub fn first_extent(&self, value: Value) -> Option<Extent> {
        let first = self.lives.partition_point(|life| life.value < value);
        self.lives.get(first).filter(|life| life.value == value).map(|life| life.extent)
    }

    /// Where a piece of state is; the same in every program of a run.
    pub fn extent_of_state(&self, value: Value) -> Option<Extent> {
        let found = self.state.binary_search_by_key(&value, |(value, _)| *value).ok()?;
        Some(self.state[found].1)
    }

    /// State with its places, in order of values. That in memory of the host has the lowest addresses.
    pub fn state(&self) -> &[(Value, Extent)] {
        &self.state
    }

    /// The scratch stack, empty between instructions.
    pub fn scratch(&self) -> Extent {
        self.scratch
    }

    /// All lives, in order of values, then of time.
    pub fn lives(&self) -> &[PlannedLife] {
        &self.lives
    }

    /// Size of the arena, without memory of the host.
    pub fn arena_bytes(&self) -> usize {
        let lives = self.lives.iter().map(|life| end_of(life.extent));
        let state = self.state.iter().map(|(_, extent)| end_of(*extent));
        lives.chain(state).chain([end_of(self.scratch)]).max().unwrap_or(0) - self.host_bytes
    }

    /// Memory of the host that the rank uses. The addresses below this are there, all others in the arena.
    pub fn host_bytes(&self) -> usize {
        self.host_bytes
    }

    /// The same with at least as much memory of the host: all in the arena has higher addresses.
    pub(crate) fn with_host_bytes(mut self, host_bytes: usize) -> RankPlan {
        let (before, more) = (self.host_bytes, host_bytes.saturating_sub(self.host_bytes));
        let states = self.state.iter_mut().map(|(_, extent)| extent);
        let lives = self.lives.iter_mut().map(|life| &mut life.extent);
        for extent in states.chain(lives).chain([&mut self.scratch]) {
            if extent.offset_bytes >= before {
                extent.offset_bytes += more;
            }
        }
        self.host_bytes += more;
        self
    }

    /// Lives in the arena.
    fn arena_lives(&self) -> impl Iterator<Item = &PlannedLife> {
        self.lives.iter().filter(|life| !is_on_host(life))
    }

    /// State in the arena, with its places.
    fn arena_state(&self) -> impl Iterator<Item = (Value, Extent)> + '_ {
        self.state.iter().copied().filter(|(_, extent)| extent.offset_bytes >= self.host_bytes)
    }

    /// The largest sum of what is alive at once, each value rounded up to [`device::ALIGN_BYTES`]; scratch and state
    /// count throughout. No plan with these sections needs less.
    pub fn largest_live_bytes(&self) -> usize {
        self.live_bytes
    }

    /// Bytes by category at the moment of the peak; they add up to [`RankPlan::arena_bytes`].
    pub fn categories(&self) -> Vec<(Category, usize)> {
        let mut bytes = self.live_categories();
        let sum: usize = bytes.values().sum();
        bytes.insert(Category::Gaps, self.arena_bytes() - sum);
        bytes.into_iter().collect()
    }

    pub(crate) fn live_categories(&self) -> BTreeMap<Category, usize> {
        let mut bytes = BTreeMap::new();
        let mut add = |category, extent: Extent| *bytes.entry(category).or_insert(0) += aligned(extent.len_bytes);
        for (value, extent) in self.arena_state() {
            add(state_category(value), extent);
        }
        add(Category::Scratch, self.scratch);
        let peak = self.peak();
        for life in self.arena_lives().filter(|life| life.start <= peak && peak < life.end) {
            add(life.category, life.extent);
        }
        bytes
    }

    /// Bytes alive by category while each of the `instrs` instructions of the program runs; state and scratch count
    /// throughout.
    pub fn live_over_program(&self, instrs: usize) -> BTreeMap<Category, Vec<usize>> {
        let mut bytes: BTreeMap<Category, Vec<usize>> = BTreeMap::new();
        let mut add = |category, extent: Extent, alive: Range<usize>| {
            let own = bytes.entry(category).or_insert_with(|| vec![0; instrs]);
            own[alive].iter_mut().for_each(|sum| *sum += aligned(extent.len_bytes));
        };
        for (value, extent) in self.arena_state() {
            add(state_category(value), extent, 0..instrs);
        }
        add(Category::Scratch, self.scratch, 0..instrs);
        for life in self.arena_lives() {
            add(life.category, life.extent, life.start..life.end.min(instrs));
        }
        bytes
    }

    /// The instruction at which most bytes are alive.
    pub fn peak(&self) -> usize {
        let live = packing::live_bytes(&items(self.arena_lives()));
        let largest = live.iter().max();
        live.iter().position(|bytes| Some(bytes) == largest).unwrap_or(0)
    }
}

pub(crate) fn end_of(extent: Extent) -> usize {
    extent.offset_bytes + aligned(extent.len_bytes)
}

fn state_category(value: Value) -> Category {
    match value {
        Value::Params(_) => Category::Parameters,
        Value::Accumulator { .. } | Value::Reduced { .. } => Category::Gradients,
        Value::Master(_) | Value::FirstMoment(_) | Value::SecondMoment(_) | Value::Average(_) => Category::Optimizer,
        Value::Cache(_) => Category::Cache,
        Value::Constants
        | Value::LossSums
        | Value::Batch(_)
        | Value::Output { .. }
        | Value::OutputGrad { .. }
        | Value::SavedUntilInput { .. }
        | Value::SavedUntilWeight { .. }
        | Value::CoreUntilInput { .. }
        | Value::CoreUntilWeight { .. }
        | Value::SavedInput { .. }
        | Value::Pending { .. }
        | Value::Gathered(_)
        | Value::Unreduced { .. }
        | Value::Staged { .. }
        | Value::OnHost { .. } => Category::Constants,
    }
}
