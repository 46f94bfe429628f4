//! One rank: its tensors, bound once, and what it needs to execute instructions.

use std::collections::BTreeMap;
use std::ops::Range;

use device::{Device, DeviceError, Dtype, Frame, Op, Stream, Tensor, Write};
use mesh::{Axis, AxisSet, Coord};
use model::binding::{BindError, EmbeddingParams, HeadParams, LayerParams};
use model::initialize::TensorParallel;
use model::{Constants, Context, DropoutRun};
use program::{Program, RankPlan, Value};
use spec::Unit;

use crate::batch::{HostBatch, SequenceOrder, TokenSource};
use crate::engine::{Groups, RankEngine};
use crate::fetch::{self, FetchError};
use crate::memory::{self, Activations};
use crate::reduce;
use crate::setup::Setup;
use crate::sink::TensorSink;
use crate::source::TensorSource;
use crate::state::{UnitState, updated_elements};

/// A computing unit's parameters and gradient accumulators, bound to places.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a rank has as many as units; they are made once")]
pub enum Bound {
    /// Table and positions.
    Embedding(Pair<EmbeddingParams>),
    /// One layer and its number.
    Layer(u32, Pair<LayerParams>),
    /// Norm and output matrix.
    Head(Pair<HeadParams>),
}

/// The same tensors twice: what a unit reads, and what it accumulates into.
#[derive(Clone, Debug)]
pub struct Pair<T> {
    /// Parameters.
    pub params: T,
    /// Gradients.
    pub gradients: T,
}

/// A rank between instructions.
pub struct Rank<'a> {
    /// The run.
    pub setup: &'a Setup,
    /// What this rank does in a step.
    pub program: &'a Program,
    /// Where its values lie.
    pub plan: &'a RankPlan,
    /// Where tokens come from.
    pub source: &'a dyn TokenSource,
    /// Executes operations.
    pub device: Box<dyn Device>,
    /// Joins tensors.
    pub groups: Groups,
    /// Units with parameters on this rank.
    pub units: BTreeMap<Unit, UnitState>,
    /// Computing units of this rank.
    pub bound: BTreeMap<Unit, Bound>,
    /// Tables and sums.
    pub constants: Constants,
    /// Temporary memory of the compute stream.
    pub scratch: Frame,
    /// Which sequences are whose.
    pub order: SequenceOrder,
    /// Host copy of a microbatch.
    pub host_batch: HostBatch,
    /// Position in tensor parallelism.
    pub tensor: TensorParallel,
    /// Takes what `Save` instructions hand over.
    pub storage: Option<&'a dyn TensorSink>,
    /// Step, counted from 0.
    pub step: u32,
    /// Index of the instruction that runs.
    pub at: usize,
    /// Computing units that have contributed gradients in this step.
    pub contributed: Vec<Unit>,
}

impl<'a> Rank<'a> {
    /// Binds the tensors of the rank at `coord` and fills tables and parameters: these from `initial`, or else with
    /// values drawn from the seed.
    ///
    /// # Errors
    /// Parameters that no layer reads or that `initial` does not have, or a failing device.
    pub fn open(
        setup: &'a Setup,
        coord: Coord,
        source: &'a dyn TokenSource,
        initial: Option<&dyn TensorSource>,
        engine: RankEngine,
    ) -> Result<Rank<'a>, OpenError> {
        let stage = coord.along(Axis::Pp);
        let (program, plan) = (setup.program(stage), setup.plan(stage));
        let tensor = TensorParallel { size: setup.parallelism.tp, position: coord.along(Axis::Tp) };
        let replica = coord.position(AxisSet::DATA);
        let units = unit_states(setup, program, plan, replica);
        let bound = bind_units(setup, program, &units)?;
        let section = plan.scratch();
        let rank = Rank {
            setup,
            program,
            plan,
            source,
            device: engine.device,
            groups: engine.groups,
            bound,
            constants: memory::constants(plan, &setup.model),
            scratch: Frame::new(section.offset_bytes, section.len_bytes),
            order: SequenceOrder {
                replica,
                num_microbatches: setup.num_microbatches(),
                microbatch_size: setup.parallelism.microbatch_size,
            },
            host_batch: HostBatch::new(setup.parallelism.microbatch_size, setup.train.sequence_length),
            tensor,
            storage: None,
            step: 0,
            at: 0,
            contributed: Vec::with_capacity(setup.model.num_layers + 2),
            units,
        };
        rank.constants.initialise(&*rank.device, Stream::Compute, &setup.model)?;
        match initial {
            Some(initial) => fetch::weights(&rank, initial)?,
            None => rank.draw_weights()?,
        }
        rank.clear_moments()?;
        Ok(rank)
    }

    /// The optimizer starts from moments of zero, whatever memory holds.
    fn clear_moments(&self) -> Result<(), DeviceError> {
        let moments = self.units.values().filter_map(|state| state.moments);
        let mut filled = moments.flat_map(|(first, second)| [first, second]).filter(|tensor| !tensor.is_empty());
        filled.try_for_each(|out| self.device.submit(Stream::Compute, &Op::Fill { out, value: 0.0 }))
    }

    fn draw_weights(&self) -> Result<(), DeviceError> {
        let (device, seed) = (&*self.device, self.setup.train.seed);
        for state in self.units.values() {
            model::initialize::initialize(device, Stream::Compute, &state.layout, state.params, seed, self.tensor)?;
        }
        Ok(())
    }

    /// Makes ready for step `step`: sums are zero, and every accumulator's first contribution will be assigned.
    ///
    /// # Errors
    /// The device's.
    pub fn begin_step(&mut self, step: u32) -> Result<(), DeviceError> {
        self.step = step;
        self.contributed.clear();
        reduce::zero_sums(&*self.device, self.constants.loss_sums)
    }

    /// Places of what lives within a step.
    pub fn activations(&self) -> Activations<'_> {
        Activations { plan: self.plan, at: self.at, model: &self.setup.model, shape: self.setup.shape() }
    }

    /// What the functions of a unit see, for the microbatch whose first sequence is `first_sequence`.
    pub fn context(&self, first_sequence: u64) -> Context<'_> {
        let first_token = first_sequence * self.setup.train.sequence_length as u64;
        Context {
            device: &*self.device,
            stream: Stream::Compute,
            tp: &*self.groups.tensor,
            model: &self.setup.model,
            shape: self.setup.shape(),
            dropout: Some(DropoutRun { seed: self.setup.train.seed, step: self.step, first_token }),
            constants: self.constants,
            scratch: &self.scratch,
        }
    }

    /// Assign for the first contribution of `unit` in a step, accumulate afterwards.
    pub fn gradient_write(&mut self, unit: Unit) -> Write {
        if self.contributed.contains(&unit) {
            return Write::Accumulate;
        }
        self.contributed.push(unit);
        Write::Assign
    }
}

/// Why a rank could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Declared and read parameters differ.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The given weights are not this model's.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

fn unit_states(setup: &Setup, program: &Program, plan: &RankPlan, replica: usize) -> BTreeMap<Unit, UnitState> {
    let place = &program.place;
    let states = place.parameter_units().map(|unit| {
        let layout = setup.layouts[&unit].clone();
        let padded_len = layout.padded_len();
        let updated: Range<usize> = updated_elements(&layout, setup.parallelism.zero, replica);
        let moment = |value| memory::state_floats(plan, value, updated.len());
        let accumulators = place
            .accumulators()
            .filter(|&(of, _)| of == unit)
            .map(|(_, by)| (by, memory::state_floats(plan, Value::Accumulator { unit, by }, padded_len)));
        let state = UnitState {
            unit,
            params: memory::state_floats(plan, Value::Params(unit), padded_len),
            accumulators: accumulators.collect(),
            moments: Some((moment(Value::FirstMoment(unit)), moment(Value::SecondMoment(unit)))),
            owned: layout.shard(replica),
            updated,
            layout,
        };
        (unit, state)
    });
    states.collect()
}

/// Binds what each computing unit of the stage reads and accumulates.
fn bind_units(
    setup: &Setup,
    program: &Program,
    units: &BTreeMap<Unit, UnitState>,
) -> Result<BTreeMap<Unit, Bound>, BindError> {
    let bind = |by: Unit| -> Result<(Unit, Bound), BindError> {
        let nothing = Tensor::new(0, 1, 0, Dtype::F32);
        let params = |unit: Unit| (&setup.layouts[&unit], units.get(&unit).map_or(nothing, |state| state.params));
        let gradients = |unit: Unit| {
            let accumulator = units.get(&unit).and_then(|state| state.accumulator(by));
            (&setup.layouts[&unit], accumulator.unwrap_or(nothing))
        };
        let bound = match by {
            Unit::Table | Unit::Embedding => Bound::Embedding(Pair {
                params: EmbeddingParams::bind(params(Unit::Table), params(Unit::Embedding))?,
                gradients: EmbeddingParams::bind(gradients(Unit::Table), gradients(Unit::Embedding))?,
            }),
            Unit::Layer(number) => {
                let ((layout, flat), (_, accumulator)) = (params(by), gradients(by));
                let bind = |flat| LayerParams::bind(number, layout, flat);
                Bound::Layer(number, Pair { params: bind(flat)?, gradients: bind(accumulator)? })
            }
            Unit::Head => {
                let is_tied = setup.model.tied_embeddings;
                Bound::Head(Pair {
                    params: HeadParams::bind(params(by), is_tied.then(|| params(Unit::Table)))?,
                    gradients: HeadParams::bind(gradients(by), is_tied.then(|| gradients(Unit::Table)))?,
                })
            }
        };
        Ok((by, bound))
    };
    program.place.computing_units().map(bind).collect()
}
