//! Runs kernels: warps of 32 lanes, blocks of warps, launches of blocks.

mod arithmetic;
mod atomics;
mod barriers;
mod block;
mod compare;
mod convert;
mod exact;
mod fault;
mod instruction_sets;
mod integer;
mod launch;
mod narrow;
mod number;
mod registers;
mod shuffle;
mod transfer;
mod warp;

pub use fault::{Fault, FaultKind};
pub use launch::{Launch, Limits, run};
