//! The layers, run on a reference device in double precision: gradients against central differences, tensor parallelism
//! against one rank, recorded sizes against what is used.

#![allow(clippy::unwrap_used)]

mod binding;
mod cases;
mod gradients;
mod recording;
mod reference;
mod rig;
mod sequence;
mod slices;
mod tensor_parallel;
mod tracer;
