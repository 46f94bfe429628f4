//! The axes over which the parameters of one unit are reduced and sharded.

use mesh::{Axis, AxisSet, AxisSizes};

use crate::parallelism::Parallelism;
use crate::params::{ParamSpec, Sharding};

/// The axes of a unit, which follow from the declarations of its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnitAxes {
    /// The axes along which ranks see different tokens, and no parameter of the unit is split: all of its gradients are
    /// summed over them.
    pub data: AxisSet,
    /// The axes of those along which ranks hold different shards of what ZeRO shards.
    pub shards: AxisSet,
}

impl UnitAxes {
    /// The axes along which ranks see different tokens, of the same sequences or of others, where none divide experts.
    pub const TOKENS: AxisSet = AxisSet::DATA.with(Axis::Cp);

    /// The axes along which ranks of a mesh of `sizes` see different tokens: ranks that divide experts see other
    /// sequences. A mesh without such ranks has no set with their axis.
    pub const fn tokens(sizes: AxisSizes) -> AxisSet {
        if sizes.ep > 1 { UnitAxes::TOKENS.with(Axis::Ep) } else { UnitAxes::TOKENS }
    }

    /// The axes of a unit with these parameters on a mesh of `sizes`.
    pub fn of<'a>(params: impl IntoIterator<Item = &'a ParamSpec>, sizes: AxisSizes) -> UnitAxes {
        let split = params.into_iter().map(|param| param.sharding.axes()).fold(AxisSet::NONE, AxisSet::union);
        let data = UnitAxes::tokens(sizes).difference(split);
        UnitAxes { data, shards: data.without(Axis::DpOuter) }
    }

    /// The data axes along which ranks hold copies of the same shards.
    pub fn replicas(self) -> AxisSet {
        self.data.difference(self.shards)
    }
}

impl Parallelism {
    /// The axes along which ranks see different sequences.
    pub fn sequence_axes(&self) -> AxisSet {
        self.token_axes().difference(self.context_axes())
    }

    /// The axes along which ranks see different tokens: [`UnitAxes::tokens`].
    pub fn token_axes(&self) -> AxisSet {
        UnitAxes::tokens(self.axis_sizes())
    }

    /// The axes along which ranks divide the experts that a tensor-parallel rank has without them.
    pub fn expert_axes(&self) -> AxisSet {
        Sharding::EXPERTS.axes().difference(self.tensor_axes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Degrees, ModelSpec, RunConfig, Sharding, Unit, params};

    fn model() -> ModelSpec {
        RunConfig::quick_start().model
    }

    #[test]
    fn ranks_along_every_axis_of_a_run_differ_in_tokens_matrices_or_layers() {
        let parallelism = RunConfig::quick_start().parallelism;
        let known = UnitAxes::TOKENS.union(parallelism.tensor_axes()).with(Axis::Pp);
        let sizes = Degrees { dp: 4, cp: 2, tp: 2, pp: 2 }.sizes(2);
        assert!(Axis::ALL.into_iter().all(|axis| sizes.along(axis) == 1 || known.contains(axis)));
        assert_eq!(parallelism.sequence_axes().union(parallelism.context_axes()), UnitAxes::TOKENS);
    }

    #[test]
    fn a_split_takes_its_axes_from_the_data_axes_of_its_unit() {
        let dense = UnitAxes { data: UnitAxes::TOKENS, shards: AxisSet::of(Axis::DpInner).with(Axis::Cp) };
        for unit in Unit::holding(2) {
            assert_eq!(UnitAxes::of(&params(&model(), unit), AxisSizes::ONE), dense, "{unit}");
        }
        assert_eq!(dense.replicas(), AxisSet::of(Axis::DpOuter));
        let cp = Sharding::Split { dim: 0, axes: AxisSet::of(Axis::Cp) };
        let split = params(&model(), Unit::Table).into_iter().map(|param| ParamSpec { sharding: cp, ..param });
        let split = UnitAxes::of(&split.collect::<Vec<_>>(), AxisSizes::ONE);
        assert_eq!(split, UnitAxes { data: AxisSet::DATA, shards: AxisSet::of(Axis::DpInner) });
    }

    /// Ranks along ep share the sums of dense parameters and hold different experts.
    #[test]
    fn ranks_that_divide_experts_differ_in_sequences() {
        let sizes = AxisSizes { dp_inner: 2, ep: 2, ..AxisSizes::ONE };
        let ep = AxisSet::of(Axis::Ep);
        let dense = UnitAxes::of(&params(&model(), Unit::Layer(0)), sizes);
        assert_eq!(dense.data, UnitAxes::TOKENS.union(ep));
        assert_eq!(dense.shards, AxisSet::of(Axis::DpInner).with(Axis::Cp).union(ep));
        let run = RunConfig::load("", "", &["model.experts=4".into(), "model.biases=\"attention\"".into()]);
        let experts = params(&run.expect("legal").model, Unit::Experts(0));
        assert_eq!(UnitAxes::of(&experts, sizes), UnitAxes::of(&experts, AxisSizes::ONE));
        assert_eq!(UnitAxes::of(&experts, sizes).data, UnitAxes::TOKENS);
    }
}
