//! Where computing units find parameters and leave gradients: flat buffers bound to tensors, once for each place that a
//! buffer has in any program of a run. Whole state has one place; what is gathered has several.

use std::collections::BTreeMap;

use config::Unit;
use device::Tensor;
use model::{AdapterBuffers, BindError, EmbeddingParams, HeadParams, LayerParams};
use program::{Pass, Program, RankPlan};

use crate::setup::Setup;

/// Which flat buffers of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// Those that it reads.
    Parameters,
    /// Those that it adds to.
    Gradients,
}

/// The place of gradients that are not made: nothing is written there.
const NOWHERE: usize = 0;

/// The place among offsets of the parameters that the gradients of adapters are made from.
const ADAPTERS: usize = Unit::MOST_READ;

/// Offsets in the arena of the flat buffers of the units whose parameters a computing unit reads, in their order;
/// `None` for one without parameters.
/// Gradients of adapters are made from their parameters, which come last.
pub type Offsets = [Option<usize>; Unit::MOST_READ + 1];

/// The offsets that the buffers of `by` have while instruction `at` runs; `None` unless all of them are there.
pub fn offsets(program: &Program, plan: &RankPlan, by: Unit, side: Side, at: usize) -> Option<Offsets> {
    let view = &program.view;
    let mut offsets = Offsets::default();
    for (offset, unit) in offsets.iter_mut().zip(by.reads_parameters_of(view.tied)) {
        if view.has_parameters(unit) {
            *offset = match side {
                Side::Parameters => Some(plan.extent(view.parameters(unit), at)?.offset_bytes),
                Side::Gradients if view.trains(unit) => {
                    Some(plan.extent(view.contribution(unit, by), at)?.offset_bytes)
                }
                Side::Gradients => Some(NOWHERE),
            };
        }
    }
    if let (Side::Gradients, Unit::Layer(layer)) = (side, by)
        && view.has_parameters(Unit::Adapters(layer))
    {
        offsets[ADAPTERS] = Some(plan.extent(view.parameters(Unit::Adapters(layer)), at)?.offset_bytes);
    }
    Some(offsets)
}

/// Bound tensors by unit, side and offsets: at one place gradients may follow gathered parameters, which have another
/// type.
#[derive(Clone, Debug, Default)]
pub struct Bindings {
    embeddings: BTreeMap<(Side, Offsets), EmbeddingParams>,
    layers: BTreeMap<(u32, Side, Offsets), LayerParams>,
    heads: BTreeMap<(Side, Offsets), HeadParams>,
}

impl Bindings {
    /// Binds everything that the programs of `setup` compute with on pipeline rank `stage`.
    ///
    /// # Errors
    /// Declared parameters are not the ones that layers read.
    pub fn new(setup: &Setup, stage: usize) -> Result<Bindings, BindError> {
        let mut bindings = Bindings::default();
        for workload in setup.workload_indices() {
            let (program, plan) = (setup.program_of(workload, stage), setup.plan_of(workload, stage));
            bindings.add_program(setup, program, plan)?;
        }
        Ok(bindings)
    }

    fn add_program(&mut self, setup: &Setup, program: &Program, plan: &RankPlan) -> Result<(), BindError> {
        for (at, instr) in program.instrs.iter().enumerate() {
            let Some(Pass { unit: by, .. }) = instr.pass() else { continue };
            for side in [Side::Parameters, Side::Gradients] {
                if let Some(offsets) = offsets(program, plan, by, side, at) {
                    self.add(setup, by, side, offsets)?;
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, setup: &Setup, by: Unit, side: Side, offsets: Offsets) -> Result<(), BindError> {
        let dtype = match side {
            Side::Parameters => setup.stored(),
            Side::Gradients => setup.train.sums.into(),
        };
        let tied = setup.model.tied();
        let flat = |unit: Unit| {
            let layout = &setup.layouts[&unit];
            let index = by.reads_parameters_of(tied).position(|read| read == unit);
            let len = layout.padded_len();
            match index.and_then(|index| offsets[index]) {
                Some(offset) => (layout, Tensor::new(offset, 1, len, dtype)),
                None => (layout, Tensor::new(0, 1, 0, dtype)),
            }
        };
        match by {
            Unit::Table | Unit::Adapters(_) | Unit::Experts(_) => {}
            Unit::Embedding if self.embeddings.contains_key(&(side, offsets)) => {}
            Unit::Embedding => {
                let bound = EmbeddingParams::bind(flat(Unit::Table), flat(Unit::Embedding))?;
                self.embeddings.insert((side, offsets), bound);
            }
            Unit::Layer(number) if self.layers.contains_key(&(number, side, offsets)) => {}
            Unit::Layer(number) => {
                let (layout, buffer) = flat(by);
                let params = LayerParams::bind(number, (layout, buffer), flat(Unit::Experts(number)))?;
                let (adapters, buffer) = flat(Unit::Adapters(number));
                let params = match side {
                    _ if adapters.is_empty() => params,
                    Side::Parameters => {
                        let buffers = AdapterBuffers { layout: adapters, parameters: buffer, gradients: None };
                        params.with_adapters(number, layout, &buffers)?
                    }
                    Side::Gradients => {
                        let place = offsets[ADAPTERS].unwrap_or(NOWHERE);
                        let parameters = Tensor::new(place, 1, adapters.padded_len(), setup.stored());
                        let buffers = AdapterBuffers { layout: adapters, parameters, gradients: Some(buffer) };
                        params.with_adapters(number, layout, &buffers)?
                    }
                };
                self.layers.insert((number, side, offsets), params);
            }
            Unit::Head if self.heads.contains_key(&(side, offsets)) => {}
            Unit::Head => {
                let table = setup.model.tied_embeddings.then(|| flat(Unit::Table));
                self.heads.insert((side, offsets), HeadParams::bind(flat(by), table)?);
            }
        }
        Ok(())
    }

    /// The embedding's tensors in buffers at `offsets`.
    ///
    /// # Panics
    /// Its buffers are not there: a fault of the program, which the verifier excludes.
    pub fn embedding(&self, side: Side, offsets: Option<Offsets>) -> &EmbeddingParams {
        found(offsets.and_then(|offsets| self.embeddings.get(&(side, offsets))), Unit::Embedding)
    }

    /// The parameters of a layer; see [`Bindings::embedding`].
    ///
    /// # Panics
    /// The panics of [`Bindings::embedding`].
    pub fn layer(&self, number: u32, side: Side, offsets: Option<Offsets>) -> &LayerParams {
        found(offsets.and_then(|offsets| self.layers.get(&(number, side, offsets))), Unit::Layer(number))
    }

    /// The parameters of the head; see [`Bindings::embedding`].
    ///
    /// # Panics
    /// The panics of [`Bindings::embedding`].
    pub fn head(&self, side: Side, offsets: Option<Offsets>) -> &HeadParams {
        found(offsets.and_then(|offsets| self.heads.get(&(side, offsets))), Unit::Head)
    }
}

fn found<T>(bound: Option<&T>, unit: Unit) -> &T {
    match bound {
        Some(bound) => bound,
        None => panic!("{unit} computes where its parameters or gradients are not"),
    }
}
