//! A training step as data: schedules are compiled into programs, programs are linked, verified, planned.
//!
//! This crate is pure: no I/O, no threads, no clock. [`Schedule`] speaks stages, [`Program`] speaks units; the meaning
//! of an instruction is written once, in [`effects`], and everything else follows from it.

#![forbid(unsafe_code)]

pub mod effects;
pub mod footprint;
pub mod instr;
pub mod passes;
pub mod place;
mod program;
pub mod schedule;
pub mod stages;
pub mod value;

pub use effects::{Effects, Partner, Stream};
pub use footprint::{Footprint, Footprints};
pub use instr::{Instr, Purpose};
pub use passes::{CompileError, CompileInput, compile, save_instrs};
pub use place::{Place, State};
pub use program::Program;
pub use schedule::{Cell, CellKind, Schedule};
pub use stages::{StageError, StageSplit, UnitWork, split_stages};
pub use value::{Value, Values};
