//! The configuration of a run: the model, its parameters and the parallelism, as data.
//!
//! This crate is pure: no I/O, no threads, no clock. Every parameter is declared once, in [`params`];
//! its shard, the sums of its gradient, its share in the global norm and its place in a checkpoint follow
//! from that declaration.

#![forbid(unsafe_code)]

mod anomalies;
mod averages;
mod balance;
mod batch;
mod check;
mod context_parallel;
mod data_spec;
mod degrees;
mod expert_params;
mod experts;
pub mod figures;
mod fnv;
mod kernel_contest;
mod layout;
mod learning_rate;
mod load;
mod local_attention;
mod lora;
mod model;
mod model_coord;
mod names;
mod offload;
mod optimizer;
mod parallelism;
mod parameter_groups;
mod params;
mod precision;
mod problem;
mod rotary_scaling;
mod router_tensors;
mod routing;
mod run_file;
mod sample_spec;
mod schedule;
mod secret;
mod training;
mod trusted;
mod unit;
mod unit_axes;
mod unit_class;
mod zero;

pub use anomalies::{Anomalies, OnNonFinite, OnSpike};
pub use averages::Averages;
pub use balance::{Balance, LoadSet, RouterBias, Statistics};
pub use batch::{BatchGrowth, BatchOrigin, BatchRamp, BatchSizes, Microbatches, StepBatch};
pub use check::{check, check_sizes};
pub use context_parallel::{ChunkOrder, ContextKind, ContextParallel, SequenceSlices};
pub use data_spec::{
    AttentionChoice, BlanksSpec, ChatDate, ChatSpec, CollectivesChoice, DataSpec, DeviceChoice, EngineChoice,
    GpuCollectives, GpuGraphs, IGNORED_LABEL, InstructionsSpec, LongConversations, Marks, OddFiles, OnLoss, Positions,
    ProductAlgorithms, ProductKernels, Recheck, RewrittenAnswers, RunSpec, SourceSpec, TokenizerSpec, TransportChoice,
    ValidationSpec, Visible,
};
pub use degrees::Degrees;
pub use experts::{ExpertsSpec, SharedExpert, SharedGate};
pub use fnv::Fnv1a;
pub use kernel_contest::{KernelContest, TimedAlgorithms, TimedTiles, kernel_contest};
pub use layout::{SHARD_BLOCK, Segment, UnitLayout};
pub use learning_rate::{DecayLength, DecayShape, LearningRateSchedule};
pub use local_attention::{LocalAttention, MAX_PATTERN, Reach};
pub use lora::{LinearLayer, LoraSpec};
pub use model::{
    Activation, Biases, Blocks, MAX_DROPOUT_HEADS, MAX_DROPOUT_KEYS, MAX_HEAD_DIM, ModelSpec, Norm, NormKind, Pairing,
    Position, QkNorm, SWIGLU_LIMIT, TopQuery,
};
pub use model_coord::ModelCoord;
pub use offload::{MemoryKind, Offload};
pub use optimizer::{Muon, MuonScale, Optimizer, UpdateMethod};
pub use parallelism::{
    FullRecompute, LayerRecompute, Overlap, Parallelism, Recompute, SavedInputs, SequenceParallel, SumRuns,
};
pub use parameter_groups::{ParameterGroup, UpdateRule};
pub use params::{
    AppliedTo, Init, ParamSpec, Sharding, active_parameters, all_params, flops_per_token, gradient_axes, params,
    unique_parameters,
};
pub use precision::{Format, GradientSums, LossScaling, Masters, Precision, Products};
pub use problem::{Location, Problem};
pub use rotary_scaling::{PairScaling, RotaryScaling};
pub use router_tensors::{ROUTER_LOAD, router_corrections, router_loads};
pub use routing::{ExpertGroups, RouterScores, RouterWeights, Routing};
pub use run_file::{
    Files, GivenWeights, KeptRun, KeptRunFile, RunConfig, answer_to_option, context_kind_name, is_function_of_weights,
    key_of_option, known_keys, known_names, nearest,
};
pub use sample_spec::SampleSpec;
pub use schedule::{GivenSchedule, ScheduleKind, ScheduleSpec};
pub use secret::{
    HIDDEN, Secret, has_credentials, is_secret_key, shown_run_file, shown_setting, shown_words, without_credentials,
};
pub use training::TrainSpec;
pub use trusted::{Author, Requests, Trusted};
pub use unit::{Microbatch, Stage, Tied, Unit};
pub use unit_axes::UnitAxes;
pub use unit_class::{PerClass, UnitClass, UnitClasses};
pub use zero::{Gathering, GradientReduction, Kept, Reshard, StateKind, ZeroStage};

// Tests name the crate as its users do.
#[cfg(test)]
extern crate self as config;
#[cfg(test)]
mod tests;
