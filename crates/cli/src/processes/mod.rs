//! The text of a run of several processes.

pub mod shared_text;
pub mod text_transfer;
