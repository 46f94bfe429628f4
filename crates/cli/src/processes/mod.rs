//! This process among those of a run.

pub mod company;
pub mod delivery;
pub mod engine_connection;
pub mod listening_addresses;
pub mod place;
