//! Transports around a transport: counting and faults.

pub mod counting;
pub mod faults;
