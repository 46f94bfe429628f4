//! What is trained and how: the model, its parameters and the parallelism, as data.
//!
//! This crate is pure: no I/O, no threads, no clock. Every parameter is declared once, in [`params`];
//! its shard, the sums of its gradient, its share in the global norm and its place in a checkpoint follow
//! from that declaration.

#![forbid(unsafe_code)]

pub mod layout;
pub mod model;
pub mod parallelism;
pub mod params;
pub mod training;
pub mod unit;

pub use layout::{Segment, UnitLayout};
pub use model::{Activation, ModelSpec, Norm, NormKind, Pairing, Position};
pub use parallelism::{Parallelism, Recompute, ScheduleKind, ZeroStage};
pub use params::{AppliedTo, Init, ParamSpec, Sharding, gradient_axes, params, unique_parameters};
pub use training::{LearningRateSchedule, TrainSpec};
pub use unit::{Microbatch, Stage, Unit};
