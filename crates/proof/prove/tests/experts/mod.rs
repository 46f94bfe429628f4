//! Models with experts: layouts that keep the order of sums change no bit, others stay within their bounds, and each
//! expert is on one rank of tensor parallelism.

#![allow(clippy::unwrap_used, reason = "a test ends where something fails")]

mod faults;
mod forced;
mod layouts;
mod norm;
mod resumed;
pub mod rig;
mod spread;
mod traffic;
