//! Ranks as threads, sharing the memory of their process.

pub(crate) mod inbox;
mod pool;
pub(crate) mod remote;
mod shared_memory;
mod transport;
pub(crate) mod world;

pub(crate) use shared_memory::Ticket;
pub use transport::ThreadTransport;
pub use world::WorldFailure;

#[cfg(all(test, shuttle))]
mod models;
