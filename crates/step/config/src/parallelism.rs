//! The degrees, ZeRO stage, schedule and recomputation of a run, and the mesh that they make.

use std::num::NonZeroUsize;

use mesh::{Axis, AxisSet, AxisSizes, Mesh, MeshError};

use crate::context_parallel::{ContextParallel, SequenceSlices};
use crate::degrees::Degrees;
use crate::names::names;
use crate::schedule::ScheduleSpec;
use crate::zero::ZeroStage;

/// Which activations are recomputed in the backward pass instead of kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Recompute {
    /// All are kept.
    None,
    /// Of every layer the attention core is recomputed: norms and rotations of heads that are not made in place, the
    /// statistics of the softmax, and its output (Korthikanti et al. 2022).
    Selective,
    /// Of some layers everything but the input is recomputed.
    Full(FullRecompute),
}

/// Which layers are recomputed from their inputs, and how these are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FullRecompute {
    /// Layers 0, `every`, 2 x `every` and so on; 1 means all.
    pub every: usize,
    /// How each rank of a tensor-parallel group keeps an input.
    pub inputs: SavedInputs,
}

/// How the input of a layer that is recomputed is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SavedInputs {
    /// As the rank has it.
    Whole,
    /// A run of its tokens on each rank of the tensor-parallel group; gathered before it is used again. With sequence
    /// parallelism a rank has no more than that from the start.
    Sharded,
}

names! { SavedInputs: "whole" = Whole, "sharded" = Sharded }

/// The recomputed part of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LayerRecompute {
    /// Nothing: all is kept.
    Nothing,
    /// The attention core, from what is kept of the projection before it.
    Core,
    /// Everything, from the layer's input.
    Everything(SavedInputs),
}

impl Recompute {
    /// Every layer, from its input as it is.
    pub const FULL: Recompute = Recompute::Full(FullRecompute { every: 1, inputs: SavedInputs::Whole });

    /// The recomputed part of `layer`.
    pub fn of_layer(self, layer: u32) -> LayerRecompute {
        match self {
            Recompute::None => LayerRecompute::Nothing,
            Recompute::Selective => LayerRecompute::Core,
            Recompute::Full(FullRecompute { every, inputs }) if (layer as usize).is_multiple_of(every) => {
                LayerRecompute::Everything(inputs)
            }
            Recompute::Full(_) => LayerRecompute::Nothing,
        }
    }
}

/// How the residual stream (what flows between tensor-parallel blocks) is on the ranks of their group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SequenceParallel {
    /// Every rank holds all tokens, and computes norms and dropouts of all.
    Off,
    /// Each rank holds an equal run of a microbatch's tokens (Korthikanti et al. 2022). Blocks gather their input and
    /// scatter their sum.
    On,
}

impl SequenceParallel {
    /// Into how many equal runs of tokens the stream is cut, for `tp` ranks.
    pub fn runs(self, tp: usize) -> usize {
        match self {
            SequenceParallel::Off => 1,
            SequenceParallel::On => tp,
        }
    }

    /// The longest pieces of a sequence of `sequence_length` tokens that no cut of the stream between `tp` ranks
    /// divides, however many sequences a microbatch has: `B` of them are cut after every `B sequence_length / tp`
    /// tokens.
    pub fn undivided_tokens(self, sequence_length: usize, tp: usize) -> usize {
        sequence_length / mesh::greatest_common_divisor(sequence_length, self.runs(tp)).max(1)
    }
}

/// Whether a rank communicates while it computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Overlap {
    /// One instruction after the other, in program order.
    Off,
    /// Reductions, gathers and transfers overlap with layers; values that they touch live a little longer.
    On,
}

/// How many members of a group a sum over data parallelism adds first, for both kinds of groups that it is taken over.
/// 1 is rank order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SumRuns {
    /// Neighbours of a sharding group.
    pub in_groups: NonZeroUsize,
    /// Neighbouring sharding groups.
    pub over_groups: NonZeroUsize,
}

/// How a run is spread over ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parallelism {
    /// How many ways each kind of work is divided.
    pub degrees: Degrees,
    /// How ranks share sequences.
    pub context: ContextParallel,
    /// Neighbours along dp that divide the experts of each layer between them, whole ones; the others hold copies. 1:
    /// every replica has all.
    pub ep: usize,
    /// Whether the ranks that share matrices divide the tokens between them, too.
    pub sequence_parallel: SequenceParallel,
    /// The state that data parallelism shards.
    pub zero: ZeroStage,
    /// Replicas among which it is sharded; `None` for all of them. Groups hold copies of the same shards.
    pub shard_group: Option<usize>,
    /// Replicas, neighbours along dp, whose gradients are added first, before these sums are; 1 adds all replicas in
    /// rank order. With sharding groups, a divisor of their size or a multiple of it; with `ep`, a multiple of that.
    pub sum_tree: usize,
    /// Order of forward and backward passes.
    pub schedule: ScheduleSpec,
    /// Sequences per microbatch.
    pub microbatch_size: usize,
    /// The activations that the backward pass recomputes.
    pub recompute: Recompute,
    /// Number of layers of each stage, in forward order; `None` balances the stages by cost.
    pub stage_layers: Option<Vec<usize>>,
    /// Whether ranks communicate while they compute; `None` as it is faster on the device.
    pub overlap: Option<Overlap>,
}

impl Parallelism {
    /// The mesh of these degrees, as [`Degrees::sizes_with_experts`].
    ///
    /// # Errors
    /// A degree of 0, or more ranks than a machine word counts.
    pub fn mesh(&self) -> Result<Mesh, MeshError> {
        Mesh::new(self.axis_sizes())
    }

    /// Replicas that share one copy of what ZeRO shards: neighbours along dp. All, where nothing is sharded.
    pub fn shard_group(&self) -> usize {
        match self.zero {
            ZeroStage::Off => self.degrees.dp,
            ZeroStage::One | ZeroStage::Two { .. } | ZeroStage::Three { .. } => {
                self.shard_group.unwrap_or(self.degrees.dp)
            }
        }
    }

    /// The order in which gradients of a unit with these data axes are summed over data parallelism: runs of `sum_tree`
    /// replicas, which are parts of a sharding group or several groups. Experts that replicas divide have a member of
    /// a sum in every `ep` of them.
    pub fn sum_runs(&self, data: AxisSet) -> SumRuns {
        let spread = if data.contains(Axis::Ep) { 1 } else { self.ep };
        let (tree, group) = (self.sum_tree, self.shard_group());
        let run = |members: usize| NonZeroUsize::new(members).unwrap_or(NonZeroUsize::MIN);
        match tree.checked_div(group) {
            Some(groups @ 1..) => SumRuns { in_groups: NonZeroUsize::MIN, over_groups: run(groups) },
            // The ranks that share a replica's sequences are neighbours in a group.
            Some(0) | None if tree > 1 => {
                SumRuns { in_groups: run(tree / spread * self.degrees.cp), over_groups: NonZeroUsize::MIN }
            }
            Some(0) | None => SumRuns { in_groups: NonZeroUsize::MIN, over_groups: NonZeroUsize::MIN },
        }
    }

    /// The recomputation that remains of the one in the run file: with sequence parallelism a layer's input is sharded
    /// before anybody asks.
    pub fn recompute_to_do(&self) -> Recompute {
        match (self.recompute, self.sequence_parallel) {
            (Recompute::Full(full), SequenceParallel::On) => {
                Recompute::Full(FullRecompute { inputs: SavedInputs::Whole, ..full })
            }
            (recompute, SequenceParallel::Off | SequenceParallel::On) => recompute,
        }
    }

    /// Which tokens of a sequence are whose.
    pub fn slices(&self) -> SequenceSlices {
        SequenceSlices { ranks: self.degrees.cp, order: self.context.chunks, kind: self.context.kind }
    }

    /// The number of ranks, as [`Degrees::world_size`].
    pub fn world_size(&self) -> usize {
        self.degrees.world_size()
    }

    /// Whether ranks communicate while they compute; where the layout does not say, as on CPUs. A run's layout says so
    /// as its device likes it: [`crate::RunConfig::parallelism_on_device`].
    pub fn overlap_or_off(&self) -> Overlap {
        self.overlap.unwrap_or(Overlap::Off)
    }

    /// Microbatches per step and replica: `global_batch / (dp * microbatch_size)`.
    pub fn num_microbatches(&self, global_batch: usize) -> usize {
        global_batch / (self.degrees.dp * self.microbatch_size)
    }

    /// Ranks along each axis of the mesh.
    pub fn axis_sizes(&self) -> AxisSizes {
        self.degrees.sizes_with_experts(self.shard_group(), self.ep)
    }

    /// The axes along which ranks see different tokens of the same sequences.
    pub fn context_axes(&self) -> AxisSet {
        AxisSet::of(Axis::Cp)
    }

    /// The axes along which ranks hold different heads, feed-forward columns and vocabulary rows.
    pub fn tensor_axes(&self) -> AxisSet {
        AxisSet::of(Axis::Tp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By plain definition: the greatest length that divides a sequence and every run of tokens of a legal microbatch.
    #[test]
    fn undivided_tokens_are_on_one_rank_in_every_microbatch() {
        for (length, tp) in (1..=24usize).flat_map(|length| (1..=8usize).map(move |tp| (length, tp))) {
            let legal = (1..=16usize).map(|sequences| sequences * length).filter(|tokens| tokens.is_multiple_of(tp));
            let runs: Vec<usize> = legal.map(|tokens| tokens / tp).chain([length]).collect();
            let longest = (1..=length).rfind(|piece| runs.iter().all(|run| run.is_multiple_of(*piece)));
            let undivided = SequenceParallel::On.undivided_tokens(length, tp);
            assert_eq!(Some(undivided), longest, "{length} tokens on {tp} ranks");
            assert_eq!(SequenceParallel::Off.undivided_tokens(length, tp), length);
        }
    }
}
