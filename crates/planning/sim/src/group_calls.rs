//! The price of the collectives that gathers, reductions, the tied sum and the norm consist of, which are those that
//! the executor issues ([`UnitCalls`], [`GroupCall::norm`]). A `[software]` section replaces some by those of its
//! trainer.

use cluster::{Cluster, Gathers, ShardedReductions, Software};
use comm::Operation;
use config::{Recompute, StateKind, UnitLayout, ZeroStage};
use device::{Dtype, SumTree, step_sum_words};
use mesh::{AxisSet, Mesh, PlacementOrder, Rank};
use program::{Collective, GradientAxes, GroupCall, PeerGroup, UnitCalls};

use crate::collective::collective_ns;
use crate::costs::StepShape;
use crate::group_shape::GroupShape;

/// The groups of a layout on a cluster.
pub struct Collectives<'a> {
    pub cluster: &'a Cluster,
    pub software: Option<&'a Software>,
    pub shape: &'a StepShape<'a>,
    pub mesh: Mesh,
}

impl Collectives<'_> {
    /// The calls over the flat buffer of a unit on the first rank.
    pub fn of_unit<'b>(&'b self, layout: &'b UnitLayout) -> UnitCalls<'b> {
        let parallelism = self.shape.parallelism;
        let updated = layout.kept(parallelism.zero, StateKind::Optimizer, self.mesh.origin());
        UnitCalls { parallelism, layout, updated }
    }

    /// Nanoseconds of one collective over `bytes` of the ranks that differ along `axes`.
    pub fn along(&self, axes: AxisSet, operation: Operation, tree: SumTree, bytes: f64) -> u64 {
        let group = GroupShape::new(&self.mesh, axes, self.placement(), self.cluster.node.accelerators);
        collective_ns(self.cluster, group, operation, tree, bytes).round() as u64
    }

    /// Two ranks.
    pub fn pair(&self, one: Rank, other: Rank) -> GroupShape {
        GroupShape::pair(&self.mesh, one, other, self.placement(), self.cluster.node.accelerators)
    }

    /// The order in which ranks fill nodes. Trainers with a `[software]` section number ranks as Megatron-LM does.
    fn placement(&self) -> PlacementOrder {
        match self.software {
            Some(_) => PlacementOrder::TpDpPp,
            None => self.shape.placement,
        }
    }

    /// Nanoseconds of one call over elements of `bytes_per_element`.
    pub fn call_ns(&self, call: &GroupCall, bytes_per_element: f64) -> u64 {
        let ((operation, tree), bytes) = (call.collective.operation(), call.elements.len() as f64 * bytes_per_element);
        match call.group {
            PeerGroup::Along(axes) => self.along(axes, operation, tree, bytes),
            PeerGroup::Ends => {
                let last = Rank(self.mesh.world_size() - self.mesh.ranks_per_stage());
                collective_ns(self.cluster, self.pair(Rank(0), last), operation, tree, bytes).round() as u64
            }
        }
    }

    /// Bytes of an element of a gradient while it is summed over ranks.
    pub fn gradient_bytes(&self) -> f64 {
        let own = || Dtype::from(self.shape.sums).size_bytes() as f64;
        self.software.map_or_else(own, |software| software.reduced_bytes)
    }

    /// One reduction of the gradient of a unit. Units of a bucket are reduced together, and so are all parameters
    /// whose gradients other axes sum besides: each pays for its bytes and its share of a start.
    pub fn reduction_ns(&self, calls: &UnitCalls) -> u64 {
        let axes =
            GradientAxes::declared(calls.layout.segments.iter().map(|segment| &segment.param), calls.parallelism);
        let (of_data, of_parameters) = reductions(calls, &axes, self.software);
        let data_bytes = self.gradient_bytes() * self.share_without_padding(calls);
        let of_data_ns = self.together_ns(&of_data, self.units_together(calls), data_bytes);
        let units_of_parameters = self.software.map_or(1.0, |_| self.units_of_rank() * of_parameters.len() as f64);
        of_data_ns + self.together_ns(&of_parameters, units_of_parameters, self.gradient_bytes())
    }

    /// Nanoseconds of `calls` as a share of those over `times` as many elements.
    fn together_ns(&self, calls: &[GroupCall], times: f64, bytes_per_element: f64) -> u64 {
        let ns = |call: &GroupCall| self.call_ns(call, bytes_per_element * times) as f64 / times;
        calls.iter().map(ns).sum::<f64>().round() as u64
    }

    /// Share of a unit's buffer without padding. Pleach pads each unit for all its shards, other trainers a bucket.
    fn share_without_padding(&self, calls: &UnitCalls) -> f64 {
        match self.software {
            None => 1.0,
            Some(_) => calls.layout.len as f64 / calls.layout.padded_len().max(1) as f64,
        }
    }

    /// Units like this one that share a bucket.
    fn units_together(&self, calls: &UnitCalls) -> f64 {
        let bucket = self.software.map_or(0.0, |software| software.bucket_parameters);
        (bucket / calls.layout.padded_len().max(1) as f64).clamp(1.0, self.units_of_rank())
    }

    /// Units of a pipeline rank, the largest stage's.
    fn units_of_rank(&self) -> f64 {
        (self.shape.model.num_layers.div_ceil(self.shape.parallelism.degrees.pp) + 2) as f64
    }

    /// One gather of the parameters of a unit, of which an element is stored in `stored_bytes`: with those that share
    /// its bucket, where they were updated in shards; where they are sharded throughout, in one piece or tensor by
    /// tensor.
    pub fn gather_ns(&self, calls: &UnitCalls, stored_bytes: f64) -> u64 {
        let gather = [calls.gather()];
        match (self.software, self.shape.parallelism.zero) {
            (None, _) => self.together_ns(&gather, 1.0, stored_bytes),
            (Some(_), ZeroStage::Off | ZeroStage::One | ZeroStage::Two { .. }) => {
                let bytes = stored_bytes * self.share_without_padding(calls);
                self.together_ns(&gather, self.units_together(calls), bytes)
            }
            (Some(software), ZeroStage::Three { .. }) => {
                let tensors = match software.gathers {
                    Gathers::PerUnit => 1.0,
                    Gathers::PerTensor => calls.layout.segments.len().max(1) as f64,
                };
                let again = match self.shape.parallelism.recompute {
                    Recompute::Full(_) => software.gathers_of_recomputed_layers / 2.0,
                    Recompute::None | Recompute::Selective => 1.0,
                };
                (self.together_ns(&gather, 1.0 / tensors, stored_bytes) as f64 * again).round() as u64
            }
        }
    }

    /// The collectives of the norm. Another trainer sums its squares alone: its loss does not belong to the step.
    pub fn norm_ns(&self) -> u64 {
        let [of_norm, of_loss] = &GroupCall::norm(step_sum_words(self.shape.model));
        let word_bytes = Dtype::I64.size_bytes() as f64;
        match self.software {
            None => self.call_ns(of_norm, word_bytes) + self.call_ns(of_loss, word_bytes),
            Some(_) => self.call_ns(of_norm, word_bytes),
        }
    }
}

/// The calls of a reduction of gradients over `axes`: those of data parallelism, and those of parameters beyond it.
pub(crate) fn reductions(
    calls: &UnitCalls<'_>,
    axes: &GradientAxes,
    software: Option<&Software>,
) -> (Vec<GroupCall>, Vec<GroupCall>) {
    let data_axes = calls.layout.axes().data;
    let is_of_data = |call: &GroupCall| match call.group {
        PeerGroup::Along(axes) => !axes.intersection(data_axes).is_empty(),
        PeerGroup::Ends => false,
    };
    let (of_data, of_parameters): (Vec<_>, Vec<_>) = calls.reduction(axes).into_iter().partition(is_of_data);
    // Whether the trainer sums whole gradients where pleach sums them to shards.
    let is_whole = software.is_some_and(|software| software.sharded_reductions == ShardedReductions::Whole);
    let of_data = if is_whole && calls.parallelism.zero == ZeroStage::One { vec![whole(calls)] } else { of_data };
    (of_data, of_parameters)
}

/// The sum of a whole gradient over all of data parallelism.
fn whole(calls: &UnitCalls) -> GroupCall {
    GroupCall {
        group: PeerGroup::Along(calls.layout.axes().data),
        collective: Collective::AllReduce(SumTree::RANK_ORDER),
        elements: 0..calls.layout.padded_len(),
    }
}
