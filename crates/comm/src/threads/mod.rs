//! Ranks as threads of one process, sharing memory.

mod inbox;
mod pool;
mod shared_memory;
mod transport;
mod world;

pub use transport::ThreadTransport;
pub use world::{RankPanic, run_world};
