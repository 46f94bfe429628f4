//! Signals that end work, and work that does not end.

pub(crate) mod exit_deadline;
pub mod interrupt;
pub(crate) mod watchdog;
