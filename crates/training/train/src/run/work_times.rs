//! The times of a rank in one step: of its own work, without waits for other ranks, and of its calls of each group.

use std::collections::BTreeMap;

use mesh::Rank;
use program::{Family, Instr, Pass, PassKind};

use crate::worker::Worker;
use crate::worker::call_clock::{CallTimes, Calls, nanoseconds};

/// Work of a rank that waits for no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Tokens are loaded.
    Load,
    /// Forward passes.
    Forward,
    /// Recomputation and backward passes.
    Backward,
    /// Everything else: copies of gradients and parameters, the optimizer.
    Update,
}

impl Work {
    /// All of it, in the order of [`WorkTimes::own_ns`].
    pub const ALL: [Work; 4] = [Work::Load, Work::Forward, Work::Backward, Work::Update];

    fn of(instr: Instr) -> Work {
        match instr.family() {
            Family::Load { .. } => Work::Load,
            Family::Pass(Pass { kind: PassKind::Forward, .. }) => Work::Forward,
            Family::Pass(_) => Work::Backward,
            Family::Transfer { .. } | Family::Gather { .. } | Family::Reduce { .. } => Work::Update,
            Family::SumTied | Family::GradNorm | Family::Update { .. } => Work::Update,
            Family::CopyState { .. } | Family::CopyActs { .. } | Family::Bookkeeping { .. } => Work::Update,
        }
    }

    /// For messages.
    pub fn name(self) -> &'static str {
        match self {
            Work::Load => "loading tokens",
            Work::Forward => "forward passes",
            Work::Backward => "backward passes",
            Work::Update => "the update",
        }
    }
}

/// The times of a rank in one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkTimes {
    pub rank: Rank,
    /// Counted from 1.
    pub step: u32,
    /// Nanoseconds of its own work, in the order of [`Work::ALL`].
    pub own_ns: [u64; Work::ALL.len()],
    /// Its collectives, by the index of the group among those of the run ([`program::PeerGroups::index`]).
    pub calls: BTreeMap<usize, CallTimes>,
    /// Nanoseconds in which it waited for what a stage sent, by that stage.
    pub received_ns: BTreeMap<usize, u64>,
}

impl WorkTimes {
    /// Of the step that has just ended on `rank`.
    pub(crate) fn of_step(worker: &Worker<'_>, rank: Rank) -> WorkTimes {
        let mut own_ns = [0; Work::ALL.len()];
        for (instr, issued) in worker.position.program.instrs.iter().zip(&worker.state.issued) {
            if let Some(issued) = issued {
                let own = issued.returned.saturating_duration_since(issued.began).saturating_sub(issued.waited);
                own_ns[Work::of(*instr) as usize] += nanoseconds(own);
            }
        }
        let Calls { calls, received_ns, .. } = worker.ports.calls.take();
        WorkTimes { rank, step: worker.position.step + 1, own_ns, calls, received_ns }
    }
}
