//! Everything about a run that is decided before a rank starts: mesh, programs, memory plans, layouts.

use std::collections::BTreeMap;

use mesh::Mesh;
use model::MicrobatchShape;
use program::{Program, RankPlan};
use spec::{ModelSpec, Parallelism, TrainSpec, Unit, UnitLayout, params};

use crate::failure::TrainError;

/// A run that is ready to start: verified programs and planned memory.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What is learned.
    pub model: ModelSpec,
    /// How it is spread.
    pub parallelism: Parallelism,
    /// How it is optimised.
    pub train: TrainSpec,
    /// The ranks.
    pub mesh: Mesh,
    /// Flat buffers of all units; empty for a unit without parameters.
    pub layouts: BTreeMap<Unit, UnitLayout>,
    /// One per pipeline coordinate.
    pub stages: Vec<StageSetup>,
}

/// What the ranks of one pipeline coordinate do.
#[derive(Clone, Debug)]
pub struct StageSetup {
    /// One optimizer step.
    pub train: Program,
    /// Hands parameters and optimizer state to storage.
    pub save: Vec<program::Instr>,
    /// Where every value lies.
    pub plan: RankPlan,
}

impl Setup {
    /// Microbatches per step and replica.
    pub fn num_microbatches(&self) -> usize {
        self.parallelism.num_microbatches(self.train.global_batch)
    }

    /// The constant that the backward pass divides by: tokens of a step if every label were valid. The exact number
    /// of valid labels enters with the clip coefficient.
    pub fn nominal_tokens(&self) -> f64 {
        (self.train.global_batch * self.train.sequence_length) as f64
    }

    /// Sizes of a microbatch.
    pub fn shape(&self) -> MicrobatchShape {
        MicrobatchShape {
            sequences: self.parallelism.microbatch_size,
            sequence_length: self.train.sequence_length,
        }
    }
}

/// The flat buffers of all units.
pub fn layouts(model: &ModelSpec, parallelism: &Parallelism) -> BTreeMap<Unit, UnitLayout> {
    std::iter::once(Unit::Table)
        .chain(Unit::computing(model.num_layers))
        .map(|unit| (unit, UnitLayout::new(params(model, unit), parallelism.tp, parallelism.dp)))
        .collect()
}
