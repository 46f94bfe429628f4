//! Runs kernels: warps of 32 lanes, blocks of warps, launches of blocks.

mod arithmetic;
mod async_copies;
mod atomics;
mod barriers;
mod block;
mod compare;
mod convert;
mod directed;
mod exact;
mod fault;
mod instruction_sets;
mod integer;
mod launch;
mod matrix;
mod memory;
mod narrow;
mod number;
mod registers;
mod shared;
mod shuffle;
mod tensor_core;
mod transfer;
mod warp;

pub use fault::{Fault, FaultKind};
pub use launch::{Launch, Limits, run};
pub use memory::touch_range;
pub use tensor_core::Rule;
