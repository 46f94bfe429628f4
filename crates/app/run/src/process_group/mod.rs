//! This process among those of a run.

pub mod company;
pub mod core_share;
pub mod delivery;
pub mod descriptors;
pub mod engine;
pub mod engine_connection;
pub mod gpu_links;
pub mod host_file;
pub mod listening_addresses;
pub mod meeting;
pub mod mpi_world;
pub mod open_files;
pub mod place;
pub mod process_ranks;
pub mod several;
pub mod shared_limit;
pub mod signal_relay;
