//! A run that is stopped and resumed, under the same layout or another, is the run that was not stopped.
//!
//! Faults change a checkpoint with hashes that are right, as a program that saves or loads the wrong thing would leave
//! it, or wrap a device, the memory that storage reads, or the text. The same check judges the clean resumption and the
//! faulty one.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod pairs;
mod resumption;
pub mod rig;
mod saved;
mod text;

mod activations;
mod averages;
mod counters;
mod dropout;
mod muon;
mod offload;
mod overlap;
mod position;
mod reading;
mod routers;
mod state;
