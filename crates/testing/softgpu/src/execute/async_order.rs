//! The order of asynchronous accesses to shared memory: of products, copies and mbarriers, by the waits of warps.
//!
//! An asynchronous access is that of an agent at a time of the agent. A warp that waits for it, or that is in order
//! after one that did, knows this time; to all others the access has not ended.

use std::ops::Range;

use super::fault::{Fault, FaultKind};
use super::global_order::Kind;
use super::shared_cells::{Knowledge, MAX_WARPS};

/// Agents of a block.
const AGENTS: usize = 72;
const WARPGROUPS: usize = MAX_WARPS / 4;
const FIRST_BARRIER: usize = WARPGROUPS + MAX_WARPS;

/// Who accesses shared memory on behalf of a warp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agent(u8);

impl Agent {
    /// The products of a warpgroup.
    pub fn products(warpgroup: usize) -> Agent {
        Agent((warpgroup % WARPGROUPS) as u8)
    }

    /// The copies from shared memory of a warp.
    pub fn stores(warp: usize) -> Agent {
        Agent((WARPGROUPS + warp % MAX_WARPS) as u8)
    }

    /// The copies to shared memory that an mbarrier counts. Many mbarriers share agents.
    pub fn loads(barrier: usize) -> Agent {
        Agent((FIRST_BARRIER + barrier % (AGENTS - FIRST_BARRIER)) as u8)
    }
}

/// A time that no warp knows.
pub const NEVER: u32 = u32::MAX;

/// The times of agents, and accesses of threads that asynchronous operations see, which come before a warp's next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AsyncKnowledge {
    agents: [u32; AGENTS],
    /// For each warp, the last of its times that a fence has shown to asynchronous operations.
    pub fenced: Knowledge,
}

impl AsyncKnowledge {
    /// Nothing.
    pub fn new() -> AsyncKnowledge {
        AsyncKnowledge { agents: [0; AGENTS], fenced: [0; MAX_WARPS] }
    }

    /// Adds what `other` knows.
    pub fn join(&mut self, other: &AsyncKnowledge) {
        let pairs = self.agents.iter_mut().zip(&other.agents);
        pairs.for_each(|(own, other)| *own = (*own).max(*other));
        let pairs = self.fenced.iter_mut().zip(&other.fenced);
        pairs.for_each(|(own, other)| *own = (*own).max(*other));
    }

    /// Adds a time of an agent.
    pub fn observe(&mut self, agent: Agent, time: u32) {
        let known = &mut self.agents[usize::from(agent.0)];
        *known = (*known).max(time);
    }
}

/// The kind of an asynchronous access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncKind {
    /// A product reads.
    Product,
    /// A copy to global memory reads.
    Store,
    /// A copy from global memory writes.
    Load,
    /// The bytes are an mbarrier, of which ordinary accesses and copies keep off.
    Barrier,
}

/// An asynchronous access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AsyncAccess {
    /// Its bytes.
    pub range: Range<usize>,
    pub kind: AsyncKind,
    /// Whose it is.
    pub agent: Agent,
    /// When it ends, in the agent's times.
    pub time: u32,
    /// The line of PTX that started it.
    pub line: u32,
}

/// The asynchronous accesses of a block.
#[derive(Clone, Debug, Default)]
pub struct AsyncOrder {
    pub warps: Vec<AsyncKnowledge>,
    accesses: Vec<AsyncAccess>,
    /// All bytes of all accesses are within.
    bounds: Range<usize>,
}

fn overlaps(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

impl AsyncOrder {
    /// No accesses yet.
    pub fn new(warps: usize) -> AsyncOrder {
        AsyncOrder { warps: vec![AsyncKnowledge::new(); warps], accesses: vec![], bounds: 0..0 }
    }

    /// The first access that does not come before an access of a warp.
    #[inline(always)]
    pub fn conflict(&self, range: &Range<usize>, kind: Kind, warp: usize) -> Option<&AsyncAccess> {
        if !overlaps(&self.bounds, range) {
            return None;
        }
        let known = &self.warps[warp].agents;
        self.accesses.iter().find(|access| {
            let conflicts = match access.kind {
                AsyncKind::Product | AsyncKind::Store => kind != Kind::Read,
                AsyncKind::Load | AsyncKind::Barrier => true,
            };
            conflicts && overlaps(&access.range, range) && known[usize::from(access.agent.0)] < access.time
        })
    }

    /// Adds an access. An older one of the same agent and bytes ends with it.
    pub fn add(&mut self, access: AsyncAccess) {
        let is_same = |old: &&mut AsyncAccess| {
            old.range == access.range && old.kind == access.kind && old.agent == access.agent && access.time != NEVER
        };
        if let Some(old) = self.accesses.iter_mut().find(is_same) {
            old.time = old.time.max(access.time);
            old.line = access.line;
            return;
        }
        self.accesses.push(access);
        self.find_bounds();
    }

    /// Forgets accesses whose bytes are all within `range`, except mbarriers.
    pub fn forget(&mut self, range: &Range<usize>) {
        let is_inside = |access: &AsyncAccess| range.start <= access.range.start && access.range.end <= range.end;
        self.accesses.retain(|access| access.kind == AsyncKind::Barrier || !is_inside(access));
        self.find_bounds();
    }

    /// Ends the use of bytes as an mbarrier.
    pub fn forget_barrier(&mut self, range: &Range<usize>) {
        self.accesses.retain(|access| access.kind != AsyncKind::Barrier || access.range != *range);
        self.find_bounds();
    }

    /// The bytes of a copy to shared memory have arrived, at a time of its agent.
    pub fn arrive(&mut self, range: &Range<usize>, agent: Agent, time: u32) {
        let is_it = |access: &&mut AsyncAccess| access.range == *range && access.agent == agent && access.time == NEVER;
        if let Some(access) = self.accesses.iter_mut().find(is_it) {
            access.time = time;
        }
    }

    fn find_bounds(&mut self) {
        let start = self.accesses.iter().map(|access| access.range.start).min().unwrap_or(0);
        let end = self.accesses.iter().map(|access| access.range.end).max().unwrap_or(0);
        self.bounds = start..end;
    }
}

impl AsyncAccess {
    /// The fault of an access that does not come after this one.
    pub fn fault(&self, offset: usize, own: &str, lane: usize) -> Fault {
        let line = self.line;
        let other = match self.kind {
            AsyncKind::Product => format!("is read by a product of PTX line {line} that this warp has not waited for"),
            AsyncKind::Store => format!("is read by a copy of PTX line {line} that this warp has not waited for"),
            AsyncKind::Load => {
                format!("is written by a copy of PTX line {line} whose mbarrier phase this warp has not waited for")
            }
            AsyncKind::Barrier => format!("is part of the mbarrier that PTX line {line} initialises"),
        };
        let kind = if self.kind == AsyncKind::Barrier { FaultKind::Invalid } else { FaultKind::Race };
        Fault::of_lane(kind, lane, format!("shared memory at {offset:#x}, {own} here, {other}"))
    }
}
