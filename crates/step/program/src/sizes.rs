//! Bytes of values on one rank.

use config::{
    Format, GradientSums, Kept, ModelSpec, Muon, Optimizer, Parallelism, PerClass, Segment, Sharding, StateKind,
    UnitLayout,
};
use device::{ALIGN_BYTES, SUM_WORDS};

use crate::{Footprints, Instr, State, Value};

/// Units whose optimizer state is in the arena at the same time: while one is updated, the next is fetched and the one
/// before is copied back.
pub(crate) const STAGED_UNITS: usize = 3;

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
    /// The second moment, which matrices of Muon do not have.
    pub second_moment: usize,
    /// Temporary bytes of the update.
    pub update_scratch: usize,
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
                Kept::Shard => layout.part(parallelism.axis_sizes().size(layout.axes().shards), 0).len(),
            };
            StateBytes {
                gathered: layout.padded_len() * number,
                unreduced: layout.padded_len() * sum,
                params: kept(StateKind::Parameters) * number,
                accumulator: kept(StateKind::Gradients) * sum,
                moment: kept(StateKind::Optimizer) * single,
                second_moment: kept(StateKind::Optimizer) * single,
                update_scratch: 0,
            }
        });
        Sizes { footprints, units, state }
    }

    /// The same with the second moments and the temporary memory of `optimizer`. Ranks that keep shards plan for the
    /// one with the most.
    #[must_use]
    pub fn updated_by(self, model: &ModelSpec, parallelism: &Parallelism, optimizer: Optimizer) -> Sizes {
        let classes = model.classes();
        let units = PerClass::new(&classes, |class| {
            let unit = classes.first(class);
            let layout = UnitLayout::of(model, unit, parallelism);
            let own = *self.units.of(unit);
            let second = optimizer.second_moments(&layout).len() * Format::Fp32.size_bytes();
            let update_scratch = update_scratch(&layout, parallelism, optimizer);
            StateBytes { second_moment: own.moment.min(second), update_scratch, ..own }
        });
        Sizes { units, ..self }
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
            Value::Accumulator { unit, .. } | Value::Reduced { unit, .. } => self.units.of(unit).accumulator,
            Value::Master(unit) | Value::FirstMoment(unit) | Value::Average(unit) => self.units.of(unit).moment,
            Value::SecondMoment(unit) => self.units.of(unit).second_moment,
            Value::Staged { unit, part } => self.bytes(part.of(unit)),
            Value::OnHost { unit, part, .. } => self.footprints.units.of(unit).kept_bytes(part),
            Value::Cache(_) => match self.state {
                State::Generation { cache_bytes } | State::TrainingWithSamples { cache_bytes } => cache_bytes,
                State::Inference | State::Training => 0,
            },
            Value::Constants => self.footprints.constant_bytes,
            Value::LossSums => self.footprints.loss_sums_bytes,
        }
    }

    /// Temporary bytes of an instruction.
    pub fn scratch_bytes(&self, instr: Instr) -> usize {
        if let Instr::OptimizerStep { unit } = instr {
            return self.units.of(unit).update_scratch;
        }
        instr.pass().map_or(0, |pass| self.footprints.units.of(pass.unit).scratch_bytes)
    }
}

/// Temporary bytes of an update of a unit: none by AdamW; by Muon, the updates of the unit, and the gathered parts,
/// copies and products of the largest matrix.
fn update_scratch(layout: &UnitLayout, parallelism: &Parallelism, optimizer: Optimizer) -> usize {
    let floats = |count: usize| aligned(count * Format::Fp32.size_bytes());
    let of_matrix = |(segment, _): &(Segment, Muon)| {
        let (rows, cols) = segment.param.matrix_shape();
        let (all, side) = (floats(rows * cols), rows.min(cols));
        let gathered = match segment.param.sharding {
            sharding if parallelism.axis_sizes().size(sharding.axes()) == 1 => 0,
            Sharding::Replicated | Sharding::VocabularyRows { .. } => 0,
            Sharding::Split { dim: 0, .. } => all,
            Sharding::Split { .. } => 2 * all,
        };
        gathered + 2 * all + 3 * floats(side * side)
    };
    let matrices = optimizer.muon_matrices(layout);
    let largest = matrices.iter().map(of_matrix).max();
    // The sums of a norm are smaller than any matrix and its products: they fit where these come afterwards.
    largest.map_or(0, |largest| floats(layout.padded_len()) + largest.max(aligned(SUM_WORDS * size_of::<i64>())))
}

/// `bytes` rounded up to whole [`ALIGN_BYTES`].
pub fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGN_BYTES)
}
