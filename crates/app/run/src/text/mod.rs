//! The text of a run.

pub mod prompt;
pub mod run_text;
pub mod shared_text;
pub(crate) mod text_transfer;
pub mod tokenize_progress;
