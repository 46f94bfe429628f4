//! The declarations of parameters as the verifier reads them: the compiler has a derivation of its own.

use config::{AppliedTo, ModelSpec, Parallelism, ParamSpec, PerClass, SequenceParallel, Unit, UnitAxes};
use mesh::{Axis, AxisSet, AxisSizes, Mesh};

/// The declared parameters of each class of units, in the order of the unit's flat buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    sequence_parallel: SequenceParallel,
    token_axes: AxisSet,
    tensor_axes: AxisSet,
    units: PerClass<Vec<DeclaredParameter>>,
    /// Whether they are trained.
    trained: PerClass<bool>,
}

/// One parameter of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredParameter {
    /// Its name; that of a layer's parameter within the layer.
    pub name: String,
    /// The axes along which ranks hold different elements.
    varies_over: AxisSet,
    /// The value that it is applied to.
    applied_to: AppliedTo,
}

impl Declared {
    /// The declarations of `model`, and how `parallelism` spreads the residual stream.
    pub fn new(model: &ModelSpec, parallelism: &Parallelism) -> Declared {
        let classes = model.classes();
        let units = PerClass::new(&classes, |class| {
            let unit = classes.first(class);
            config::params(model, unit).iter().map(|param| DeclaredParameter::new(unit, param)).collect()
        });
        Declared {
            sequence_parallel: parallelism.sequence_parallel,
            token_axes: parallelism.sequence_axes().union(parallelism.context_axes()),
            tensor_axes: parallelism.tensor_axes(),
            units,
            trained: PerClass::new(&classes, |class| model.trains(classes.first(class))),
        }
    }

    /// The parameters of `unit`.
    pub fn of(&self, unit: Unit) -> &[DeclaredParameter] {
        self.units.of(unit)
    }

    /// Whether the parameters of `unit` are trained.
    pub fn trains(&self, unit: Unit) -> bool {
        *self.trained.of(unit)
    }

    /// The axes of `unit`: those of tokens, as far as each rank along them has the same elements of every parameter.
    /// Sharding groups are along all of them but the outer data axis.
    pub fn axes(&self, unit: Unit) -> UnitAxes {
        axes_of(self.of(unit), self.token_axes)
    }

    /// The axes over which the gradient of `parameter` must be summed: those along which the value that it is applied
    /// to varies and the parameter does not.
    pub fn required_axes(&self, parameter: &DeclaredParameter) -> AxisSet {
        self.value_varies_over(parameter.applied_to).intersection(parameter.varies_over.complement())
    }

    /// Replicas read different sequences. Pipeline ranks hold different parameters, and the two uses of a tied table
    /// are added by an instruction of their own.
    fn value_varies_over(&self, value: AppliedTo) -> AxisSet {
        match value {
            AppliedTo::Residual if self.sequence_parallel.runs(TWO) == 1 => self.token_axes,
            AppliedTo::Choice => AxisSet::NONE,
            AppliedTo::Residual | AppliedTo::Heads | AppliedTo::Hidden | AppliedTo::Vocabulary => {
                self.token_axes.union(self.tensor_axes)
            }
        }
    }
}

fn axes_of(parameters: &[DeclaredParameter], token_axes: AxisSet) -> UnitAxes {
    let is_split = |axis: &Axis| parameters.iter().any(|parameter| parameter.varies_over.contains(*axis));
    let data: AxisSet = token_axes.iter().filter(|axis| !is_split(axis)).collect();
    UnitAxes { data, shards: data.iter().filter(|axis| *axis != Axis::DpOuter).collect() }
}

/// Ranks along an axis, at the fewest at which something can differ between them.
const TWO: usize = 2;

impl DeclaredParameter {
    fn new(unit: Unit, param: &ParamSpec) -> DeclaredParameter {
        let is_split = |axis: &Axis| {
            let two = Mesh::new(AxisSizes::only(*axis, TWO));
            let starts = |mesh: Mesh| mesh.ranks().map(move |rank| param.local_start(&mesh.coord(rank)));
            two.is_ok_and(|mesh| starts(mesh).any(|start| start != param.local_start(&mesh.origin())))
        };
        let within = match unit {
            Unit::Layer(layer) | Unit::Adapters(layer) | Unit::Experts(layer) => {
                param.name.strip_prefix(&format!("layers.{layer}."))
            }
            Unit::Table | Unit::Embedding | Unit::Head => None,
        };
        DeclaredParameter {
            name: within.unwrap_or(&param.name).into(),
            varies_over: Axis::ALL.into_iter().filter(is_split).collect(),
            applied_to: param.applied_to,
        }
    }
}

/// A unit of experts that is split over other axes than a run has yet: each place that takes axes, groups, shapes or
/// copies from a unit must get those of this one.
#[cfg(test)]
mod tests {
    use config::{ModelCoord, RunConfig, Sharding, UnitLayout};
    use mesh::Rank;

    use super::*;
    use crate::{GradientAxes, PeerGroup, PeerGroups};

    /// Up and down projections of 8 experts, whole experts on each rank along `axes`.
    fn experts(axes: AxisSet) -> Vec<ParamSpec> {
        let sets = ["model.experts=8", "model.expert_hidden=96", "model.biases=false", "model.hidden=64"];
        let run = RunConfig::load("", "", &sets.map(String::from)).expect("legal");
        let split = |param| ParamSpec { sharding: Sharding::Split { dim: 0, axes }, ..param };
        config::params(&run.model, Unit::Experts(0)).into_iter().map(split).collect()
    }

    fn set(axes: &[Axis]) -> AxisSet {
        axes.iter().copied().collect()
    }

    /// Expert parallelism alone, folded over tensor parallelism, over context parallelism, and over both.
    fn folds() -> [AxisSet; 4] {
        [set(&[Axis::Ep]), set(&[Axis::Ep, Axis::Tp]), set(&[Axis::Cp, Axis::Ep]), set(&[Axis::Cp, Axis::Ep, Axis::Tp])]
    }

    #[test]
    fn the_axes_of_a_unit_are_derived_twice() {
        for axes in folds() {
            let params = experts(axes);
            let declared: Vec<_> = params.iter().map(|param| DeclaredParameter::new(Unit::Experts(0), param)).collect();
            assert!(declared.iter().all(|parameter| parameter.varies_over == axes), "{axes}");
            let own = UnitAxes::of(&params, AxisSizes::ONE);
            assert_eq!(own, axes_of(&declared, UnitAxes::TOKENS), "{axes}");
            assert_eq!(own.data, UnitAxes::TOKENS.difference(axes), "{axes}");
            assert_eq!(own.shards, own.data.without(Axis::DpOuter), "{axes}");
        }
    }

    #[test]
    fn gradients_are_summed_over_the_data_axes_of_the_unit_alone() {
        let parallelism = RunConfig::quick_start().parallelism;
        for axes in folds() {
            let params = experts(axes);
            let (own, summed) = (UnitAxes::of(&params, AxisSizes::ONE), GradientAxes::declared(&params, &parallelism));
            // Columns of other heads are not: the value that experts are applied to differs between tensor ranks.
            let beyond = parallelism.tensor_axes().difference(axes);
            assert!(summed.beyond(own.data).all(|alone| alone == beyond), "{axes}");
            assert!(summed.reduces_over(own.shards) && summed.reduces_over(own.replicas()), "{axes}");
        }
    }

    #[test]
    fn a_run_has_a_group_for_each_set_of_axes() {
        let parallelism = Parallelism { ep: 2, ..RunConfig::quick_start().parallelism };
        let mesh = parallelism.mesh().expect("a mesh");
        for axes in folds() {
            let layout = UnitLayout::new(experts(axes), parallelism.axis_sizes(), 1);
            let groups = PeerGroups::of_units(mesh, &parallelism, [&layout]);
            let own = layout.axes();
            for needed in [axes.without(Axis::Tp), own.shards, own.replicas()] {
                assert!(groups.index(PeerGroup::Along(needed)).is_some(), "{axes}: {needed}");
            }
        }
        assert_eq!(PeerGroups::new(mesh, []).index(PeerGroup::Along(set(&[Axis::Ep]))), None);
    }

    #[test]
    fn each_element_has_one_first_copy_in_a_replica() {
        let sizes = AxisSizes { cp: 2, ep: 2, tp: 2, ..AxisSizes::ONE };
        let mesh = Mesh::new(sizes).expect("a mesh");
        for axes in folds() {
            let layout = UnitLayout::new(experts(axes), sizes, 1);
            for segment in &layout.segments {
                let first = |rank: &Rank| {
                    let coord = mesh.coord(*rank);
                    // Ranks along data axes hold copies, of which each stores a part.
                    let is_of_first_replica = coord.position(layout.axes().data) == 0;
                    is_of_first_replica && ModelCoord::new(coord).is_first_copy(&segment.param, layout.axes())
                };
                let elements: usize = mesh.ranks().filter(first).map(|_| segment.range().len()).sum();
                assert_eq!(elements, segment.param.len(), "{} over {axes}", segment.param.name);
            }
        }
    }

    #[test]
    fn stacks_of_matrices_are_rows() {
        let [rows, stack] = [0, 1].map(|index| experts(set(&[Axis::Ep])).swap_remove(index));
        let sizes = AxisSizes::only(Axis::Ep, 4);
        assert_eq!((rows.matrix_shape(), rows.local_shape(sizes)), ((8 * 96, 64), (2 * 96, 64)));
        assert_eq!((stack.matrix_shape(), stack.local_shape(sizes)), ((8 * 64, 96), (2 * 64, 96)));
        let third = Mesh::new(sizes).expect("a mesh").coord(Rank(2));
        assert_eq!((stack.local_start(&third), rows.local_start(&third)), ((4 * 64, 0), (384, 0)));
    }

    /// A split inside each expert is not a run of rows.
    #[test]
    #[should_panic(expected = "layers.0.experts.down.weight must be split along its first dim or its last")]
    fn a_split_inside_of_experts_is_refused_by_name() {
        let stack = experts(set(&[Axis::Ep])).swap_remove(1);
        let inside = ParamSpec { sharding: Sharding::Split { dim: 1, axes: set(&[Axis::Tp]) }, ..stack };
        inside.local_shape(AxisSizes::only(Axis::Tp, 2));
    }

    #[test]
    fn a_run_without_ranks_of_experts_has_no_group_along_their_axis() {
        let parallelism = RunConfig::quick_start().parallelism;
        let mesh = parallelism.mesh().expect("a mesh");
        let layout = UnitLayout::new(experts(set(&[Axis::Ep, Axis::Tp])), parallelism.axis_sizes(), 1);
        let names: Vec<String> =
            PeerGroups::of_units(mesh, &parallelism, [&layout]).iter().map(|which| which.to_string()).collect();
        assert!(names.iter().all(|name| !name.contains("ep+")), "{names:?}");
    }
}
