//! A cluster as data: accelerators, nodes, networks, and the software whose runs are predicted.
//!
//! A profile is a TOML file. Every number has its unit in its name and its source in the section `[sources]`. The few
//! constants that no data sheet prints have a physical meaning each ([`Compute`], [`Link`]) and are fitted to measured
//! runs.
//!
//! This crate is pure: it reads texts, no files.

#![forbid(unsafe_code)]

mod attention;
mod constant;
mod file;
mod named;
mod offers;
mod profile;
mod software;
mod trainer;

pub use attention::{Attention, AttentionSums, FlashKernels, MeasuredKernels, TILE_ROWS};
pub use constant::{Constant, RangeEnd};
pub use file::ProfileError;
pub use named::{named, names};
pub use offers::{OfferedAxis, OfferedSchedule, Offers};
pub use profile::{Accelerator, Cluster, CollectiveLibrary, Compute, HalfFormats, Link, Node};
pub use software::{
    AttentionKernels, CheapOutputs, GatedProducts, GatheredInputs, Gathers, GradientAddition, HeadKernels, Logits,
    NewTensors, PipelineTensors, RecomputedLayers, Rotated, SecondStage, ShardedReductions, SingleProducts, Software,
    StreamQueue, TensorCollectives, TrainerMemory, Transfers, UpdatedGathers, Updates, WeightGradients,
};
