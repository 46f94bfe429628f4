//! Where a worker is: in the run, in the mesh and in the program that it executes.

use config::{SequenceParallel, Tied, Unit};
use device::Dtype;
use model::{Accumulation, KeyValueCache, MicrobatchShape};
use program::{Program, RankPlan, UnitCalls, Value, Waits};

use crate::setup::{Setup, Workload, WorkloadIndex};
use crate::worker::batch::SequenceOrder;
use crate::worker::bindings::{Offsets, Side, offsets};
use crate::worker::memory::{self, Activations};
use crate::worker::position::RankPosition;
use crate::worker::unit_state::{Held, UnitState};

/// The run, the rank and the instruction: all that places of tensors follow from.
#[derive(Clone, Copy)]
pub struct RunPosition<'a> {
    /// The run.
    pub setup: &'a Setup,
    /// Positions along the axes.
    pub rank: RankPosition,
    /// Which of the run's programs it executes.
    pub workload: WorkloadIndex,
    pub program: &'a Program,
    /// The waits of its instructions on other streams.
    pub waits: &'a Waits,
    /// The places of its values.
    pub plan: &'a RankPlan,
    /// Sizes of a microbatch.
    pub shape: MicrobatchShape,
    /// Which sequences are whose.
    pub order: SequenceOrder,
    /// Place in each sequence of the microbatch's first token, where earlier ones are in the cache.
    pub first_cached: usize,
    /// Step, counted from 0.
    pub step: u32,
    /// Index of the instruction that runs.
    pub at: usize,
}

impl<'a> RunPosition<'a> {
    /// Before the first instruction of the first step of the program of `workload`.
    pub fn new(setup: &'a Setup, rank: RankPosition, workload: WorkloadIndex) -> RunPosition<'a> {
        let stage = rank.stage;
        let Workload { num_microbatches, shape, .. } = *setup.workload_of(workload);
        RunPosition {
            setup,
            rank,
            workload,
            program: setup.program_of(workload, stage),
            waits: setup.waits_of(workload, stage),
            plan: setup.plan_of(workload, stage),
            shape,
            order: SequenceOrder { replica: rank.replica, num_microbatches, microbatch_size: shape.sequences },
            first_cached: 0,
            step: 0,
            at: 0,
        }
    }

    /// The same step of another program of the run, before its first instruction.
    #[must_use]
    pub fn taking_up(&self, workload: WorkloadIndex) -> RunPosition<'a> {
        let RunPosition { setup, rank, step, first_cached, .. } = *self;
        RunPosition { step, first_cached, ..RunPosition::new(setup, rank, workload) }
    }

    /// Places of what lives within a step.
    pub fn activations(&self) -> Activations<'a> {
        let residual_rows = self.shape.tokens() / self.sequence_parallel().runs(self.rank.tensor.size);
        let RunPosition { setup, plan, at, shape, .. } = *self;
        Activations { plan, at, model: &setup.model, shape, stored: setup.stored(), residual_rows }
    }

    /// Whether the tokens of the program are sharded over tensor parallelism.
    pub fn sequence_parallel(&self) -> SequenceParallel {
        self.setup.workload_of(self.workload).sequence_parallel(&self.setup.parallelism)
    }

    /// Tokens of the program, if every label were valid.
    pub fn nominal_tokens(&self) -> f64 {
        self.setup.workload_of(self.workload).nominal_tokens(&self.setup.parallelism)
    }

    /// The numbers in accumulators of gradients where the loss is multiplied by `loss_scale`.
    pub fn accumulation(&self, loss_scale: f32) -> Accumulation {
        Accumulation::new(self.setup.train.sums, self.nominal_tokens() as usize, loss_scale)
    }

    /// The collectives over the parameters or gradients of a unit of this rank.
    pub fn calls<'b>(&'b self, state: &'b UnitState) -> UnitCalls<'b> {
        UnitCalls { parallelism: &self.setup.parallelism, layout: &state.layout, updated: state.updated.clone() }
    }

    /// The sum of the gradients of a unit's parameters that `by` made, all of it or this rank's shard, while the
    /// instruction runs.
    ///
    /// # Panics
    /// It is not there: a fault of the program, which the verifier excludes.
    pub fn gradient_sum(&self, state: &UnitState, by: Unit) -> Held {
        self.summed(state, by, self.setup.train.sums.into())
    }

    /// The gradient of a unit in single precision, which [`crate::execute::reduce::norm`] leaves, where the run trains.
    pub fn gradient(&self, state: &UnitState) -> Option<Held> {
        state.makers.first().map(|by| self.summed(state, *by, Dtype::F32))
    }

    fn summed(&self, state: &UnitState, by: Unit, dtype: Dtype) -> Held {
        let elements = state.summed.clone();
        let value = self.program.view.sum(state.unit, by);
        Held { tensor: memory::numbers_at(self.plan, value, self.at, elements.len(), dtype), elements }
    }

    /// The gathered parameters of a unit, or the gradient that `ReduceGrads` reduces: a value of the unit's whole flat
    /// buffer.
    ///
    /// # Panics
    /// The panics of [`RunPosition::gradient_sum`].
    pub fn whole(&self, state: &UnitState, value: Value, dtype: Dtype) -> device::Tensor {
        memory::numbers_at(self.plan, value, self.at, state.layout.padded_len(), dtype)
    }

    /// Where the buffers are that `by` reads, or adds to, in the instruction that runs.
    pub fn offsets(&self, by: Unit, side: Side) -> Option<Offsets> {
        offsets(self.program, self.plan, by, side, self.at)
    }

    /// The keys and values to which a unit of a generating program adds; none where ranks share sequences.
    pub fn cache(&self, unit: Unit) -> Option<KeyValueCache> {
        let Setup { model, cache_size, .. } = self.setup;
        let remembers = self.program.view.caches(unit) && self.shape.slices.ranks == 1;
        remembers.then(|| {
            let frame = memory::cache(self.plan, unit);
            KeyValueCache::lay_out(&frame, model, self.rank.tensor.size, *cache_size, self.first_cached)
        })
    }
}

/// A tied table that two ranks hold is delivered by the embedding's.
pub fn answers_for(position: &RunPosition<'_>, unit: Unit) -> bool {
    match (unit, position.setup.model.tied()) {
        (Unit::Table, Tied::Yes) => position.program.view.computes(Unit::Embedding),
        (Unit::Table, Tied::No)
        | (Unit::Embedding | Unit::Layer(_) | Unit::Head | Unit::Adapters(_) | Unit::Experts(_), _) => true,
    }
}
