//! The folder that a run leaves.

pub(crate) mod past_records;
pub mod run_folder;
