//! (crate cpu)
pub mod instruction_set;
pub mod lanes;
pub mod math;
