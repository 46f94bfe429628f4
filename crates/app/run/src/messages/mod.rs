//! Messages for people on the standard error.

pub mod patience;
pub mod stderr;
