//! A training step as data: schedules are compiled into programs, programs are linked, verified, planned.
//!
//! This crate is pure: no I/O, no threads, no clock. [`Schedule`] speaks stages, [`Program`] speaks units; the meaning
//! of an instruction is written once, in [`effects`], and everything else follows from it.

#![forbid(unsafe_code)]

pub mod clock;
mod declared;
pub mod effects;
pub mod footprint;
mod gradient_axes;
pub mod instr;
pub mod link;
mod lives;
pub mod memory;
pub mod packing;
pub mod passes;
mod peers;
mod program;
pub mod program_set;
mod quick_hash;
pub mod rank_view;
mod rules;
pub mod schedule;
pub mod sizes;
pub mod stages;
pub mod value;
pub mod verify;
pub mod violation;
pub mod world;

pub use clock::{Bubble, Durations, PassTimes, Queue, Queues, StepTimes, UnitTimes};
pub use declared::{Declared, DeclaredParameter};
pub use effects::{Effects, Partner, Stream};
pub use footprint::{Footprint, Footprints};
pub use gradient_axes::GradientAxes;
pub use instr::{Instr, Pass, PassKind, Purpose};
pub use link::{Event, StepGraph, Wait, link};
pub use memory::{Category, Extent, MemoryPlan, PlannedLife, RankPlan, least_memory, live_memory, plan_memory};
pub use passes::{CompileError, CompileInput, compile, compile_rank, save_instrs, saved_units};
pub use peers::{PeerGroup, Peers};
pub use program::Program;
pub use program_set::{ProgramSet, ProgramSetError};
pub use rank_view::{RankView, State};
pub use schedule::{Cell, CellCosts, CellKind, Schedule, ScheduleError};
pub use sizes::{Sizes, StateBytes};
pub use stages::{StageError, StageSplit, UnitWork, split_stages};
pub use value::{Value, Values};
pub use verify::{ContributionOrder, Demands, Verified, verify};
pub use violation::{Rule, Violation};
pub use world::{World, WorldRank, WorldStep};
