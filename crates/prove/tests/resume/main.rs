//! A run that is stopped and goes on, under the same layout or another, is the run that was not stopped.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod overlap;
mod position;
mod reading;
mod rig;
mod state;
