//! The axes over which the parameters of one unit are reduced and sharded.

use mesh::{Axis, AxisSet};

use crate::params::ParamSpec;

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
    /// The axes along which ranks see different tokens, of the same sequences or of others.
    pub const TOKENS: AxisSet = AxisSet::DATA.with(Axis::Cp);

    /// The axes of a unit with these parameters.
    pub fn of<'a>(params: impl IntoIterator<Item = &'a ParamSpec>) -> UnitAxes {
        let split = params.into_iter().map(|param| param.sharding.axes()).fold(AxisSet::NONE, AxisSet::union);
        let data = UnitAxes::TOKENS.difference(split);
        UnitAxes { data, shards: data.without(Axis::DpOuter) }
    }

    /// The data axes along which ranks hold copies of the same shards.
    pub fn replicas(self) -> AxisSet {
        self.data.difference(self.shards)
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
            assert_eq!(UnitAxes::of(&params(&model(), unit)), dense, "{unit}");
        }
        assert_eq!(dense.replicas(), AxisSet::of(Axis::DpOuter));
        let cp = Sharding::Split { dim: 0, axes: AxisSet::of(Axis::Cp) };
        let split = params(&model(), Unit::Table).into_iter().map(|param| ParamSpec { sharding: cp, ..param });
        let split = UnitAxes::of(&split.collect::<Vec<_>>());
        assert_eq!(split, UnitAxes { data: AxisSet::DATA, shards: AxisSet::of(Axis::DpInner) });
    }
}
