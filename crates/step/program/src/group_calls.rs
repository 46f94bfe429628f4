//! The collectives that gathers, reductions, the tied sum and the norm consist of: the one description of them. The
//! executor walks the list, and the simulator prices the same list.

use std::ops::Range;

use config::{Parallelism, SumRuns, UnitLayout, ZeroStage};
use device::{Call, Dtype, Operation, Reduction, SUM_WORDS, SumTree, Tensor};

use crate::{GradientAxes, PeerGroup};

/// A collective on the reduction stream; reductions are sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collective {
    /// The sum of all members' elements in this order, on every member.
    AllReduce(SumTree),
    /// The sum of all members' elements in this order, each member keeping one slice.
    ReduceScatter(SumTree),
    /// Every member's slice, on every member.
    AllGather,
}

impl Collective {
    /// The call over `x`.
    pub fn on(self, x: Tensor) -> Call {
        match self {
            Collective::AllReduce(tree) => Call::AllReduce(x, Reduction::Sum(tree)),
            Collective::ReduceScatter(tree) => Call::ReduceScatter(x, tree),
            Collective::AllGather => Call::AllGather(x),
        }
    }

    /// The operation, and the order in which it adds.
    pub fn operation(self) -> (Operation, SumTree) {
        let call = self.on(Tensor::new(0, 1, 0, Dtype::F32));
        (call.operation(), call.tree())
    }
}

/// One call of a collective.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupCall {
    /// The ranks that call it.
    pub group: PeerGroup,
    pub collective: Collective,
    /// Elements of the buffer that the instruction is about, all members' slices together.
    pub elements: Range<usize>,
}

impl GroupCall {
    /// The calls of the norm, in order: the sums of the squares of the gradients, then the `words` of other sums
    /// ([`device::step_sum_words`]). Each is over a buffer of its own.
    pub fn norm(words: usize) -> [GroupCall; 2] {
        [SUM_WORDS, words].map(|words| GroupCall {
            group: PeerGroup::WORLD,
            collective: Collective::AllReduce(SumTree::RANK_ORDER),
            elements: 0..words,
        })
    }
}

/// The collectives of one rank over the flat buffer of a unit.
#[derive(Clone, Debug)]
pub struct UnitCalls<'a> {
    /// The layout of the run.
    pub parallelism: &'a Parallelism,
    /// The flat buffer.
    pub layout: &'a UnitLayout,
    /// Elements of the buffer that the rank updates: its shard under ZeRO, all otherwise.
    pub updated: Range<usize>,
}

impl UnitCalls<'_> {
    /// A reduction of gradients over `axes`: each parameter over its axes beyond data parallelism by itself, then the
    /// whole buffer over data parallelism, to all ranks or to shards; there within sharding groups first, then over
    /// groups. Only the sums over data parallelism are in the order of `parallelism.sum_tree`; all others are in rank
    /// order.
    ///
    /// # Panics
    /// The parameters of the unit have different data axes: a fault of the program, which the verifier excludes.
    pub fn reduction(&self, axes: &GradientAxes) -> Vec<GroupCall> {
        let of_unit = self.layout.axes();
        let beyond = self.layout.segments.iter().zip(axes.beyond(of_unit.data));
        let alone = beyond.filter(|(_, own)| !own.is_empty()).map(|(segment, own)| GroupCall {
            group: PeerGroup::Along(own),
            collective: Collective::AllReduce(SumTree::RANK_ORDER),
            elements: segment.range(),
        });
        let mut calls: Vec<GroupCall> = alone.collect();
        let (shard_axes, replica_axes) = (of_unit.shards, of_unit.replicas());
        let SumRuns { in_groups, over_groups } = self.parallelism.sum_runs(of_unit.data);
        let [in_groups, over_groups] = [in_groups, over_groups].map(SumTree::of_runs);
        let whole = match self.parallelism.zero {
            // All of dp is one group.
            ZeroStage::Off => Collective::AllReduce(in_groups),
            ZeroStage::One | ZeroStage::Two { .. } | ZeroStage::Three { .. } => Collective::ReduceScatter(in_groups),
        };
        if axes.reduces_over(shard_axes) {
            calls.push(GroupCall { group: PeerGroup::Along(shard_axes), collective: whole, elements: self.all() });
        }
        if whole == Collective::ReduceScatter(in_groups) && axes.reduces_over(replica_axes) {
            calls.push(GroupCall {
                group: PeerGroup::Along(replica_axes),
                collective: Collective::AllReduce(over_groups),
                elements: self.updated.clone(),
            });
        }
        calls
    }

    /// A gather of parameters from the shards of a sharding group.
    pub fn gather(&self) -> GroupCall {
        GroupCall {
            group: PeerGroup::Along(self.layout.axes().shards),
            collective: Collective::AllGather,
            elements: self.all(),
        }
    }

    /// The sum of the two gradients of a tied table, where its uses are on two ranks.
    pub fn tied(&self) -> GroupCall {
        GroupCall {
            group: PeerGroup::Ends,
            collective: Collective::AllReduce(SumTree::RANK_ORDER),
            elements: self.updated.clone(),
        }
    }

    fn all(&self) -> Range<usize> {
        0..self.layout.padded_len()
    }
}
