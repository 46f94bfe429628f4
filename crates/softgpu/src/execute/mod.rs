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
mod global_order;
mod instruction_sets;
mod integer;
mod launch;
mod local;
mod matrix;
mod memory;
mod narrow;
mod number;
mod registers;
mod runs;
mod shared;
mod shared_cells;
mod shuffle;
mod tensor_core;
mod transfer;
mod warp;

pub use fault::{Fault, FaultKind};
pub use global_order::touch_range;
pub use launch::{Launch, Limits, run};
pub use tensor_core::Rule;
