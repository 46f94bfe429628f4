//! The folder that a run leaves.

pub mod past_records;
pub mod run_folder;
