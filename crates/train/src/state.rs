//! A unit's persistent tensors on one rank.

use std::ops::Range;

use device::Tensor;
use spec::{Unit, UnitLayout, ZeroStage};

/// Elements of a unit's flat buffer, and where they lie.
#[derive(Clone, Debug)]
pub struct Held {
    /// Which ones: all, or a shard.
    pub elements: Range<usize>,
    /// `[1, elements.len()]`
    pub tensor: Tensor,
}

impl Held {
    /// The place of `elements` of the flat buffer.
    ///
    /// # Panics
    /// When they are not held here.
    pub fn part(&self, elements: Range<usize>) -> Tensor {
        let Range { start, end } = self.elements;
        assert!(start <= elements.start && elements.end <= end, "{elements:?} of {:?}", self.elements);
        self.tensor.elements(elements.start - start..elements.end - start)
    }
}

/// Parameters, gradients and optimizer state of one unit: places in the arena.
#[derive(Clone, Debug)]
pub struct UnitState {
    /// The unit.
    pub unit: Unit,
    /// Its flat buffer.
    pub layout: UnitLayout,
    /// All parameters, as layers read them.
    pub params: Held,
    /// The weights that are updated, of the elements [`UnitState::updated`], where they are not the parameters themselves.
    pub masters: Option<Held>,
    /// One gradient buffer `[1, padded_len]` per computing unit that contributes: two for a tied table whose uses share a rank.
    pub accumulators: Vec<(Unit, Tensor)>,
    /// First and second moments `[1, updated.len()]`; absent when nothing is trained.
    pub moments: Option<(Tensor, Tensor)>,
    /// Elements that this rank updates: its shard under ZeRO, all otherwise.
    pub updated: Range<usize>,
    /// Elements that this rank answers for in the norm and in storage: its data-parallel slice, whatever is sharded.
    pub owned: Range<usize>,
}

impl UnitState {
    /// What holds the weights that the optimizer updates and a run ends with.
    pub fn weights(&self) -> &Held {
        self.masters.as_ref().unwrap_or(&self.params)
    }

    /// The gradient buffer that `by` accumulates into.
    pub fn accumulator(&self, by: Unit) -> Option<Tensor> {
        self.accumulators.iter().find(|(user, _)| *user == by).map(|(_, tensor)| *tensor)
    }

    /// The buffer that holds the whole gradient after reduction (after the tied sum, for a table).
    pub fn gradient(&self) -> Option<Tensor> {
        self.accumulators.first().map(|(_, tensor)| *tensor)
    }

    /// Splits `range` of the flat buffer at the end of decay and at the end of parameters: (elements, decayed?).
    pub fn decay_ranges(&self, range: &Range<usize>) -> [(Range<usize>, Decay); 2] {
        let decayed = self.layout.decayed_len;
        let clip = |part: Range<usize>| {
            let start = range.start.max(part.start).min(range.end);
            start..range.end.min(part.end).max(start)
        };
        [(clip(0..decayed), Decay::Yes), (clip(decayed..self.layout.len), Decay::No)]
    }
}

/// Whether weight decay applies to a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decay {
    /// Matrices.
    Yes,
    /// Norms and biases.
    No,
}

/// Elements that data-parallel position `position` updates.
pub fn updated_elements(layout: &UnitLayout, zero: ZeroStage, position: usize) -> Range<usize> {
    match zero {
        ZeroStage::Off => 0..layout.padded_len(),
        ZeroStage::One => layout.shard(position),
    }
}
