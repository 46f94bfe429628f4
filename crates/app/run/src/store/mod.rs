//! Runs and texts at addresses of object stores.

pub mod downloads;
pub mod settings;
pub mod stored;
pub(crate) mod unanswered;
