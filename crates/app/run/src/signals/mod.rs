//! Signals that end work, and work that does not end.

pub mod grace;
pub mod interrupt;
pub mod watchdog;
