//! Bytes of values on one rank.

use config::{Format, GradientSums, Kept, ModelSpec, Parallelism, PerClass, StateKind, UnitLayout};
use device::ALIGN_BYTES;

use crate::{Footprints, Instr, State, Value};

/// Bytes of every value, by class of units; the same on all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Activations and scratch.
    pub footprints: Footprints,
    /// State of one unit.
    pub units: PerClass<StateBytes>,
    /// Which state is kept: programs that run in one arena keep the same.
    pub state: State,
}

/// Bytes of one unit's state on one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateBytes {
    /// All parameters, gathered.
    pub gathered: usize,
    /// All gradients, before they are reduced.
    pub unreduced: usize,
    /// Parameters: all of them or a data-parallel shard.
    pub params: usize,
    /// One sum of gradients: all of it or a data-parallel shard.
    pub accumulator: usize,
    /// One moment of the optimizer: all of it or a data-parallel shard. Master weights, where they are apart, and
    /// averages, where they are kept, are as many numbers.
    pub moment: usize,
}

impl Sizes {
    /// Sizes of a run whose parameters are `stored` and whose gradients are `sums`; master weights and moments are in
    /// single precision.
    pub fn new(
        model: &ModelSpec,
        parallelism: &Parallelism,
        footprints: Footprints,
        stored: Format,
        sums: GradientSums,
        state: State,
    ) -> Sizes {
        let (number, sum, single) = (stored.size_bytes(), sums.size_bytes(), Format::Fp32.size_bytes());
        let classes = model.classes();
        let units = PerClass::new(&classes, |class| {
            let layout = UnitLayout::of(model, classes.first(class), parallelism);
            let kept = |state| match parallelism.zero.keeps(state) {
                Kept::Whole => layout.padded_len(),
                Kept::Shard => layout.part(parallelism.axis_sizes().size(parallelism.shard_axes()), 0).len(),
            };
            StateBytes {
                gathered: layout.padded_len() * number,
                unreduced: layout.padded_len() * sum,
                params: kept(StateKind::Parameters) * number,
                accumulator: kept(StateKind::Gradients) * sum,
                moment: kept(StateKind::Optimizer) * single,
            }
        });
        Sizes { footprints, units, state }
    }

    /// Bytes of a value, without alignment.
    pub fn bytes(&self, value: Value) -> usize {
        match value {
            Value::Batch(_) => self.footprints.batch_bytes,
            Value::Output { unit, .. } | Value::OutputGrad { unit, .. } => self.footprints.units.of(unit).output_bytes,
            Value::SavedUntilInput { unit, .. } => self.footprints.units.of(unit).saved_until_input_bytes,
            Value::SavedUntilWeight { unit, .. } => self.footprints.units.of(unit).saved_until_weight_bytes,
            Value::CoreUntilInput { unit, .. } => self.footprints.units.of(unit).core_until_input_bytes,
            Value::CoreUntilWeight { unit, .. } => self.footprints.units.of(unit).core_until_weight_bytes,
            Value::SavedInput { unit, .. } => self.footprints.units.of(unit).saved_input_bytes,
            Value::Pending { unit, .. } => self.footprints.units.of(unit).pending_bytes,
            Value::Gathered(unit) => self.units.of(unit).gathered,
            Value::Unreduced { unit, .. } => self.units.of(unit).unreduced,
            Value::Params(unit) => self.units.of(unit).params,
            Value::Accumulator { unit, .. } | Value::Reduced { unit, .. } | Value::LateSum { unit, .. } => {
                self.units.of(unit).accumulator
            }
            Value::Master(unit) | Value::FirstMoment(unit) | Value::SecondMoment(unit) | Value::Average(unit) => {
                self.units.of(unit).moment
            }
            Value::Cache(_) => match self.state {
                State::Generation { cache_bytes } => cache_bytes,
                State::Inference | State::Training => 0,
            },
            Value::Constants => self.footprints.constant_bytes,
            Value::LossSums => self.footprints.loss_sums_bytes,
        }
    }

    /// Temporary bytes of an instruction.
    pub fn scratch_bytes(&self, instr: Instr) -> usize {
        instr.pass().map_or(0, |pass| self.footprints.units.of(pass.unit).scratch_bytes)
    }
}

/// `bytes` rounded up to whole [`ALIGN_BYTES`].
pub fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGN_BYTES)
}
