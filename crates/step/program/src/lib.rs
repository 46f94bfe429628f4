//! A training step as data: schedules are compiled into programs, programs are linked, verified, planned.
//!
//! This crate is pure: no I/O, no threads, no clock. [`Schedule`] speaks stages, [`Program`] speaks units; the meaning
//! of an instruction is written once, in [`effects`], and everything else follows from it.

#![forbid(unsafe_code)]

mod accesses;
mod clock;
mod declared;
mod effects;
mod footprint;
mod gradient_axes;
mod group_calls;
mod in_turns;
mod instr;
mod link;
mod linked;
mod lives;
mod memory;
mod next_gathers;
pub mod packing;
mod passes;
mod peers;
mod program;
mod program_set;
mod quick_hash;
mod rank_plan;
mod rank_view;
mod reached;
mod rules;
mod schedule;
mod settled;
mod sizes;
mod stages;
mod value;
mod verify;
mod violation;
mod waits;
mod world;

pub use accesses::{Access, accesses};
pub use clock::{Bubble, Durations, PassTimes, Queue, Queues, StepTimes, UnitTimes, Updates};
pub use declared::{Declared, DeclaredParameter};
pub use effects::{Effects, Gradients, Partner};
pub use footprint::{Footprint, Footprints};
pub use gradient_axes::GradientAxes;
pub use group_calls::{Collective, GroupCall, UnitCalls};
pub use in_turns::run_in_turns;
pub use instr::{Family, Half, Instr, Pass, PassKind, Purpose, TransferDirection, UnitPasses};
pub use link::{Event, StepGraph, Wait};
pub use linked::link;
pub use memory::{least_memory, live_host_memory, live_memory, live_over_programs, plan_memory};
pub use next_gathers::UpdatedGathers;
pub use passes::{CompileError, CompileInput, compile, compile_rank, save_instrs, saved_units};
pub use peers::{PeerGroup, PeerGroups, Peers};
pub use program::Program;
pub use program_set::{ProgramSet, ProgramSetError};
pub use rank_plan::{Category, Extent, MemoryPlan, PlannedLife, RankPlan};
pub use rank_view::{RankView, State};
pub use reached::Reached;
pub use schedule::{
    Cell, CellCosts, CellKind, CellTimes, GivenScheduleError, Schedule, ScheduleError, ScheduleTextError, StageCosts,
    Timeline, forward_only, gpipe, interleaved, one_forward_one_backward, zero_bubble_auto, zero_bubble_h1,
    zero_bubble_h2, zero_bubble_v,
};
pub use sizes::{Sizes, StateBytes};
pub use stages::{StageError, StageSplit, split_stages};
pub use value::{ActivationPart, OptimizerPart, Value, Values};
pub use verify::{ContributionOrder, Demands, Verified, verify};
pub use violation::{Rule, Violation};
pub use waits::Waits;
pub use world::{World, WorldRank, WorldStep};

#[cfg(test)]
mod tests;
