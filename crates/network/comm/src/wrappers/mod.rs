//! Transports around a transport: counting, faults, and links of a fixed rate.

pub mod counting;
pub mod faults;
pub mod paced;
