//! Asynchronous accesses to shared memory, and what warps know of them.

use std::ops::Range;

use super::async_order::{Agent, AsyncAccess, AsyncKind, AsyncKnowledge, AsyncOrder, NEVER};
use super::fault::{Fault, FaultKind};
use super::global_order::Kind;
use super::shared::Shared;
use super::shared_cells::{Knowledge, Moment};

/// The knowledge of a warp when it arrived at a barrier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departed {
    /// Of accesses of threads.
    pub known: Knowledge,
    /// Of asynchronous accesses.
    pub asynchronous: Option<Box<AsyncKnowledge>>,
}

impl Departed {
    /// Adds what `other` knew.
    pub fn join(&mut self, other: &Departed) {
        self.known.iter_mut().zip(&other.known).for_each(|(own, other)| *own = (*own).max(*other));
        match (&mut self.asynchronous, &other.asynchronous) {
            (Some(own), Some(other)) => own.join(other),
            (own @ None, other) => own.clone_from(other),
            (Some(_), None) => {}
        }
    }
}

impl Shared {
    /// The same memory for a kernel with asynchronous accesses.
    #[must_use]
    pub fn with_asynchronous(mut self, warps: usize) -> Shared {
        self.asynchronous = Some(Box::new(AsyncOrder::new(warps)));
        self
    }

    /// Shows everything that comes before the next step of a warp to asynchronous operations after it.
    pub fn fence_proxy(&mut self, warp: usize) {
        self.enter_listed();
        let known = self.cells.depart(warp);
        if let Some(order) = &mut self.asynchronous {
            order.warps[warp].fenced = known;
        }
    }

    /// A lane at its warp's time.
    pub fn now(&self, warp: usize, lane: usize) -> Moment {
        self.cells.now(warp, lane)
    }

    /// Whether a moment comes before a warp's next step.
    pub fn is_before(&self, moment: Moment, now: Moment) -> bool {
        self.cells.is_before(moment, now)
    }

    /// Whether asynchronous operations of a warp see what a thread did at a moment.
    pub fn is_fenced(&self, moment: Moment, warp: usize) -> bool {
        let order = self.asynchronous.as_ref();
        order.is_some_and(|order| moment.time <= order.warps[warp].fenced[usize::from(moment.warp)])
    }

    /// A warp learns of a time of an agent.
    pub fn observe(&mut self, warp: usize, agent: Agent, time: u32) {
        if let Some(order) = &mut self.asynchronous {
            order.warps[warp].observe(agent, time);
        }
    }

    /// A warp learns what others knew when they arrived.
    pub fn acquire(&mut self, warp: usize, departed: &Departed) {
        self.enter_listed();
        self.cells.acquire(warp, &departed.known);
        if let (Some(order), Some(known)) = (&mut self.asynchronous, &departed.asynchronous) {
            order.warps[warp].join(known);
        }
    }

    /// Begins an asynchronous access of a warp's lane.
    ///
    /// # Errors
    /// Bytes that the memory does not have, or that nothing has written; accesses of others at the same time; writes of
    /// threads without a fence between.
    pub fn begin(&mut self, access: AsyncAccess, warp: usize, lane: usize) -> Result<(), Fault> {
        let range = access.range.clone();
        let (kind, own) = match access.kind {
            AsyncKind::Product => (Kind::Read, "read by a product"),
            AsyncKind::Store => (Kind::Read, "read by a copy"),
            AsyncKind::Load | AsyncKind::Barrier => (Kind::Write, "written by a copy"),
        };
        self.check_order(&range, kind, own, warp, lane)?;
        self.enter_listed();
        let now = self.cells.now(warp, lane);
        let Some(order) = &mut self.asynchronous else { return Ok(()) };
        self.cells.check_asynchronous(range.clone(), kind, now, &order.warps[warp].fenced, own)?;
        if kind == Kind::Write {
            order.forget(&range);
            self.cells.clear(range.clone());
        }
        order.add(access);
        Ok(())
    }

    /// Checks an access of a lane against asynchronous ones.
    ///
    /// # Errors
    /// One that this warp has not waited for.
    pub fn check_order(
        &self,
        range: &Range<usize>,
        kind: Kind,
        own: &str,
        warp: usize,
        lane: usize,
    ) -> Result<(), Fault> {
        let conflict = self.asynchronous.as_ref().and_then(|order| order.conflict(range, kind, warp));
        conflict.map_or(Ok(()), |access| Err(access.fault(access.range.start.max(range.start), own, lane)))
    }

    /// The bytes that an asynchronous access reads.
    ///
    /// # Errors
    /// Bytes that nothing has written.
    pub fn read_asynchronously(&self, offset: usize, bytes: usize, lane: usize) -> Result<&[u8], Fault> {
        if !self.is_written.are_all(offset, bytes) {
            let text = format!("{bytes} bytes of shared memory at {offset:#x} are read, but were never written");
            return Err(Fault::of_lane(FaultKind::Unwritten, lane, text));
        }
        Ok(&self.bytes[offset..offset + bytes])
    }

    /// Writes bytes of an asynchronous access.
    pub fn write_asynchronously(&mut self, offset: usize, from: &[u8]) {
        self.is_written.set(offset, from.len());
        self.bytes[offset..offset + from.len()].copy_from_slice(from);
    }

    /// The bytes of a copy to shared memory have arrived.
    pub fn arrive(&mut self, range: &Range<usize>, agent: Agent, time: u32) {
        if let Some(order) = &mut self.asynchronous {
            order.arrive(range, agent, time);
        }
    }

    /// Makes bytes an mbarrier.
    ///
    /// # Errors
    /// Bytes that others access at the same time.
    pub fn make_barrier(&mut self, range: &Range<usize>, line: u32, warp: usize, lane: usize) -> Result<Moment, Fault> {
        self.check_order(range, Kind::Write, "made an mbarrier", warp, lane)?;
        self.enter_listed();
        let now = self.cells.now(warp, lane);
        self.cells.check_write(range.start, range.len(), now)?;
        self.cells.clear(range.clone());
        if let Some(order) = &mut self.asynchronous {
            let agent = Agent::loads(0);
            order.add(AsyncAccess { range: range.clone(), kind: AsyncKind::Barrier, agent, time: NEVER, line });
        }
        Ok(now)
    }

    /// Ends the use of bytes as an mbarrier.
    pub fn end_barrier(&mut self, range: &Range<usize>, warp: usize, lane: usize) {
        if let Some(order) = &mut self.asynchronous {
            order.forget_barrier(range);
        }
        self.cells.note_write(range.start, range.len(), self.cells.now(warp, lane));
    }
}
