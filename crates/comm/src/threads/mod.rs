//! Ranks as threads of one process, sharing memory.

mod inbox;
mod pool;
mod shared_memory;
mod transport;

pub use transport::ThreadTransport;
