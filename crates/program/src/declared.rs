//! The declarations of parameters as the verifier reads them: the compiler has a derivation of its own.

use config::unit::UnitKind;
use config::{AppliedTo, ModelSpec, Parallelism, ParamSpec, SequenceParallel, Unit};
use mesh::{Axis, AxisSet};

/// The declared parameters of each kind of unit, in the order of the unit's flat buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    sequence_parallel: SequenceParallel,
    table: Vec<DeclaredParameter>,
    embedding: Vec<DeclaredParameter>,
    layer: Vec<DeclaredParameter>,
    head: Vec<DeclaredParameter>,
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
        let of = |unit| config::params(model, unit).iter().map(DeclaredParameter::new).collect();
        Declared {
            sequence_parallel: parallelism.sequence_parallel,
            table: of(Unit::Table),
            embedding: of(Unit::Embedding),
            layer: of(LAYER),
            head: of(Unit::Head),
        }
    }

    /// The parameters of one kind of unit.
    pub fn of(&self, kind: UnitKind) -> &[DeclaredParameter] {
        match kind {
            UnitKind::Table => &self.table,
            UnitKind::Embedding => &self.embedding,
            UnitKind::Layer => &self.layer,
            UnitKind::Head => &self.head,
        }
    }

    /// The axes over which the gradient of `parameter` must be summed: those along which the value that it is applied to
    /// varies and the parameter does not.
    pub fn required_axes(&self, parameter: &DeclaredParameter) -> AxisSet {
        let varies = |axis: &Axis| self.value_varies(parameter.applied_to, *axis);
        Axis::ALL.into_iter().filter(varies).collect::<AxisSet>().intersection(parameter.varies_over.complement())
    }

    fn value_varies(&self, value: AppliedTo, axis: Axis) -> bool {
        match axis {
            // Pipeline ranks hold different parameters. The two uses of a tied table are added by an instruction of their own.
            Axis::Pp => false,
            // Replicas read different sequences.
            Axis::DpOuter | Axis::DpInner => true,
            // No layout has ranks along these axes.
            Axis::Cp | Axis::Ep => false,
            Axis::Tp => match value {
                AppliedTo::Residual => self.sequence_parallel.runs(TWO) > 1,
                AppliedTo::Heads | AppliedTo::Hidden | AppliedTo::Vocabulary => true,
            },
        }
    }
}

/// Layers declare equal parameters.
const LAYER: Unit = Unit::Layer(0);

/// Ranks along an axis, at the fewest at which something can differ between them.
const TWO: usize = 2;

impl DeclaredParameter {
    fn new(param: &ParamSpec) -> DeclaredParameter {
        let is_split = param.local_start(TWO, 0) != param.local_start(TWO, 1);
        DeclaredParameter {
            name: param.name.strip_prefix("layers.0.").unwrap_or(&param.name).into(),
            varies_over: if is_split { AxisSet::of(Axis::Tp) } else { AxisSet::NONE },
            applied_to: param.applied_to,
        }
    }
}
