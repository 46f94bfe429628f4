//! A training step as data: schedules are compiled into programs, programs are linked, verified, planned.

#![forbid(unsafe_code)]

pub mod footprint;
pub mod instr;

pub use footprint::{Footprint, Footprints};
pub use instr::{Instr, Purpose};
