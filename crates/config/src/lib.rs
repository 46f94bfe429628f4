//! What is trained and how: the model, its parameters and the parallelism, as data.
//!
//! This crate is pure: no I/O, no threads, no clock. Every parameter is declared once, in [`params`];
//! its shard, the sums of its gradient, its share in the global norm and its place in a checkpoint follow
//! from that declaration.

#![forbid(unsafe_code)]

pub mod batch;
pub mod check;
pub mod data_spec;
pub mod layout;
pub mod model;
pub mod parallelism;
pub mod parameter_groups;
pub mod params;
pub mod precision;
pub mod problem;
pub mod rotary_scaling;
pub mod run_file;
pub mod schedule;
pub mod tied_sum;
pub mod training;
pub mod unit;
pub mod zero;

pub use batch::{BatchGrowth, BatchOrigin, BatchRamp, BatchSizes, Microbatches, StepBatch};
pub use check::check;
pub use data_spec::{BlanksSpec, DataSpec, InstructionsSpec, Positions, RunSpec, SourceSpec, TokenizerSpec, Visible};
pub use layout::{Segment, UnitLayout};
pub use model::{Activation, Biases, Blocks, ModelSpec, Norm, NormKind, Pairing, Position, TopQuery};
pub use parallelism::{FullRecompute, LayerRecompute, Parallelism, Recompute, SavedInputs, SequenceParallel};
pub use parameter_groups::{ParameterGroup, UpdateRule};
pub use params::{
    AppliedTo, Init, ParamSpec, Sharding, all_params, flops_per_token, gradient_axes, params, unique_parameters,
};
pub use precision::{Format, GradientSums, LossScaling, Masters, Precision, Products};
pub use problem::{Location, Problem};
pub use rotary_scaling::RotaryScaling;
pub use run_file::{Files, GivenWeights, RunConfig, key_of_option, known_keys};
pub use schedule::{GivenSchedule, ScheduleKind, ScheduleSpec};
pub use tied_sum::TiedSum;
pub use training::{LearningRateSchedule, TrainSpec};
pub use unit::{Microbatch, Stage, Unit};
pub use zero::{Gathering, GradientReduction, Kept, Reshard, StateKind, ZeroStage};
