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
        let is_split = |axis: &Axis| self.of(unit).iter().any(|parameter| parameter.varies_over.contains(*axis));
        let data: AxisSet = self.token_axes.iter().filter(|axis| !is_split(axis)).collect();
        UnitAxes { data, shards: data.iter().filter(|axis| *axis != Axis::DpOuter).collect() }
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
            AppliedTo::Residual | AppliedTo::Heads | AppliedTo::Hidden | AppliedTo::Vocabulary => {
                self.token_axes.union(self.tensor_axes)
            }
        }
    }
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
            Unit::Layer(layer) | Unit::Adapters(layer) => param.name.strip_prefix(&format!("layers.{layer}.")),
            Unit::Table | Unit::Embedding | Unit::Head => None,
        };
        DeclaredParameter {
            name: within.unwrap_or(&param.name).into(),
            varies_over: Axis::ALL.into_iter().filter(is_split).collect(),
            applied_to: param.applied_to,
        }
    }
}
