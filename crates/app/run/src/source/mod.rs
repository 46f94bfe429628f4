//! The run that weights are read from.

pub(crate) mod file_hash;
pub mod hugging_face_run;
pub mod run_source;
