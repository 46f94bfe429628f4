//! Signals that end work, and work that does not end.

pub(crate) mod grace;
pub mod interrupt;
pub(crate) mod watchdog;
