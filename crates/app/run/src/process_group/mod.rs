//! This process among those of a run.

pub(crate) mod core_share;
pub mod delivery;
pub(crate) mod descriptors;
pub(crate) mod engine;
pub(crate) mod engine_connection;
pub(crate) mod gpu_links;
pub mod group;
pub mod host_file;
pub(crate) mod listening_addresses;
pub mod meeting;
pub mod member;
pub(crate) mod mpi_world;
pub(crate) mod open_files;
pub mod place;
pub mod process_ranks;
pub mod shared_limit;
pub mod signal_relay;
