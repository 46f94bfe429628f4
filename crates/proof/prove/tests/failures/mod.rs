//! A rank that fails, stalls or receives nothing ends the run for all, with an error that says where it was.

#![allow(clippy::unwrap_used)]

mod agreement;
mod arena;
mod deadline;
mod faulty_engine;
mod panic;
mod process;
mod refusal;
mod rig;
