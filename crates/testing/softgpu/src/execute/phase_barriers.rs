//! mbarriers: phases that end when threads have arrived and bytes have come.
//!
//! A copy that a phase counts comes as late as it may: when somebody waits for the phase and all arrivals are there.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use super::async_order::{Agent, AsyncAccess, AsyncKind, NEVER};
use super::bulk_copies::Source;
use super::fault::{Fault, FaultKind};
use super::memory::Memory;
use super::shared_async::Departed;
use super::shared_cells::Moment;

/// Bytes of an mbarrier.
const BYTES: usize = 8;
/// The most arrivals of a phase, and the most bytes that it may wait for.
const MOST: u32 = (1 << 20) - 1;

/// The mbarriers of a block by their place.
#[derive(Debug, Default)]
pub struct PhaseBarriers {
    barriers: BTreeMap<usize, PhaseBarrier>,
    /// How many were made so far.
    made: usize,
}

#[derive(Debug)]
struct PhaseBarrier {
    agent: Agent,
    made_at: Moment,
    is_shown: bool,
    /// Arrivals of each phase.
    arrivals: u32,
    /// Arrivals that the phase still waits for.
    pending: u32,
    /// Bytes that the phase expects.
    expected: i64,
    /// Bytes that have come in the phase.
    come: i64,
    /// Phases that have ended.
    phase: u32,
    /// The knowledge of threads that have arrived in this phase, and in all before.
    arrived: Option<Departed>,
    released: Option<Departed>,
    copies: VecDeque<Load>,
}

/// A copy to shared memory that has begun.
#[derive(Debug)]
struct Load {
    source: Source,
    range: Range<usize>,
    lane: usize,
}

/// A phase that a warp waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AwaitedPhase {
    /// The one after as many.
    Number(u32),
    /// The newest one of a parity.
    Parity(u32),
}

impl PhaseBarrier {
    fn has_ended(&self, awaited: AwaitedPhase) -> bool {
        match awaited {
            AwaitedPhase::Number(phase) => self.phase > phase,
            AwaitedPhase::Parity(parity) => self.phase & 1 != parity,
        }
    }

    /// Ends the phase, if nothing is missing.
    fn settle(&mut self) {
        if self.pending > 0 || self.expected != self.come {
            return;
        }
        self.phase += 1;
        self.pending = self.arrivals;
        (self.expected, self.come) = (0, 0);
        if let Some(arrived) = self.arrived.take() {
            match &mut self.released {
                Some(released) => released.join(&arrived),
                released @ None => *released = Some(arrived),
            }
        }
    }
}

impl PhaseBarriers {
    /// Makes an mbarrier.
    ///
    /// # Errors
    /// A place or a number of arrivals that it may not have; a place where one is.
    pub fn initialize(
        &mut self,
        memory: &mut Memory<'_>,
        place: usize,
        arrivals: u32,
        line: u32,
        lane: usize,
    ) -> Result<(), Fault> {
        let refuse = |text: String| Err(Fault::of_lane(FaultKind::Invalid, lane, text));
        if arrivals == 0 || arrivals > MOST {
            return refuse(format!("an mbarrier must have 1 to {MOST} arrivals; got {arrivals}"));
        }
        if self.barriers.contains_key(&place) {
            return refuse(format!("an mbarrier is at {place:#x} already; use mbarrier.inval before another"));
        }
        memory.check(crate::ptx::Space::Shared, place as u64, BYTES, BYTES, lane)?;
        let made_at = memory.shared.make_barrier(&(place..place + BYTES), line, memory.warp, lane)?;
        let barrier = PhaseBarrier {
            agent: Agent::loads(self.made),
            made_at,
            is_shown: false,
            arrivals,
            pending: arrivals,
            expected: 0,
            come: 0,
            phase: 0,
            arrived: None,
            released: None,
            copies: VecDeque::new(),
        };
        self.barriers.insert(place, barrier);
        self.made += 1;
        Ok(())
    }

    /// Shows the mbarriers that a warp has made to asynchronous operations.
    pub fn show(&mut self, warp: usize) {
        let own = |barrier: &&mut PhaseBarrier| usize::from(barrier.made_at.warp) == warp;
        self.barriers.values_mut().filter(own).for_each(|barrier| barrier.is_shown = true);
    }

    fn find(&mut self, memory: &Memory<'_>, place: usize, lane: usize) -> Result<&mut PhaseBarrier, Fault> {
        let Some(barrier) = self.barriers.get_mut(&place) else {
            let text = format!("there is no mbarrier at {place:#x}: mbarrier.init comes first");
            return Err(Fault::of_lane(FaultKind::Invalid, lane, text));
        };
        let now = memory.shared.now(memory.warp, lane);
        if !memory.shared.is_before(barrier.made_at, now) {
            let (warp, thread) = (usize::from(barrier.made_at.warp), usize::from(barrier.made_at.lane));
            let text = format!(
                "the mbarrier at {place:#x} is initialised by thread {} of the block, without a barrier between",
                warp * 32 + thread
            );
            return Err(Fault::of_lane(FaultKind::Race, lane, text));
        }
        Ok(barrier)
    }

    /// Checks that a lane may use an mbarrier.
    ///
    /// # Errors
    /// None there, or one that another thread makes at the same time.
    pub fn check(&mut self, memory: &Memory<'_>, place: usize, lane: usize) -> Result<(), Fault> {
        self.find(memory, place, lane).map(|_| ())
    }

    /// Ends the use of an mbarrier.
    ///
    /// # Errors
    /// None there; copies that it counts and that have not come.
    pub fn invalidate(&mut self, memory: &mut Memory<'_>, place: usize, lane: usize) -> Result<(), Fault> {
        let copies = self.find(memory, place, lane)?.copies.len();
        if copies > 0 {
            let text = format!("the mbarrier at {place:#x} counts {copies} copies that have not come");
            return Err(Fault::of_lane(FaultKind::Invalid, lane, text));
        }
        self.barriers.remove(&place);
        memory.shared.end_barrier(&(place..place + BYTES), memory.warp, lane);
        Ok(())
    }

    /// Adds bytes that a phase expects.
    ///
    /// # Errors
    /// None there; too many bytes.
    pub fn expect(&mut self, memory: &Memory<'_>, place: usize, bytes: u32, lane: usize) -> Result<(), Fault> {
        let barrier = self.find(memory, place, lane)?;
        barrier.expected += i64::from(bytes);
        if barrier.expected - barrier.come > i64::from(MOST) {
            let open = barrier.expected - barrier.come;
            let text = format!("a phase of the mbarrier at {place:#x} must expect at most {MOST} bytes; got {open}");
            return Err(Fault::of_lane(FaultKind::Invalid, lane, text));
        }
        Ok(())
    }

    /// Arrives; returns the state of the phase before.
    ///
    /// # Errors
    /// None there; more arrivals than the phase waits for.
    pub fn arrive(
        &mut self,
        memory: &mut Memory<'_>,
        place: usize,
        count: u32,
        departed: &Departed,
        lane: usize,
    ) -> Result<u64, Fault> {
        let barrier = self.find(memory, place, lane)?;
        let state = u64::from(barrier.phase) << 32 | u64::from(barrier.pending);
        if count == 0 || count > barrier.pending {
            let (pending, phase) = (barrier.pending, barrier.phase);
            let text = format!(
                "{count} arrivals at the mbarrier at {place:#x}, whose phase {phase} waits for {pending} of {} more",
                barrier.arrivals
            );
            return Err(Fault::of_lane(FaultKind::Invalid, lane, text));
        }
        barrier.pending -= count;
        match &mut barrier.arrived {
            Some(arrived) => arrived.join(departed),
            arrived @ None => *arrived = Some(departed.clone()),
        }
        barrier.settle();
        Ok(state)
    }

    /// Whether a phase has ended. A warp for which it has is in order after its arrivals and copies.
    ///
    /// # Errors
    /// None there; a parity that is not 0 or 1.
    pub fn has_ended(
        &mut self,
        memory: &mut Memory<'_>,
        place: usize,
        awaited: AwaitedPhase,
        lane: usize,
    ) -> Result<bool, Fault> {
        if let AwaitedPhase::Parity(parity) = awaited
            && parity > 1
        {
            let text = format!("the parity of a phase must be 0 or 1; got {parity}");
            return Err(Fault::of_lane(FaultKind::Invalid, lane, text));
        }
        let warp = memory.warp;
        let barrier = self.find(memory, place, lane)?;
        let has_ended = barrier.has_ended(awaited);
        if has_ended {
            if let Some(released) = &barrier.released {
                memory.shared.acquire(warp, released);
            }
            memory.shared.observe(warp, barrier.agent, barrier.phase);
        }
        Ok(has_ended)
    }

    /// Begins a copy that the mbarrier counts.
    ///
    /// # Errors
    /// None there, or one that asynchronous operations do not see; bytes that others access at the same time.
    pub fn begin_load(
        &mut self,
        memory: &mut Memory<'_>,
        place: usize,
        source: Source,
        range: Range<usize>,
        line: u32,
        lane: usize,
    ) -> Result<(), Fault> {
        let warp = memory.warp;
        let barrier = self.find(memory, place, lane)?;
        if !barrier.is_shown && !memory.shared.is_fenced(barrier.made_at, warp) {
            let text = format!(
                "the mbarrier at {place:#x} is not visible to copies: use fence.mbarrier_init or fence.proxy.async after mbarrier.init"
            );
            return Err(Fault::of_lane(FaultKind::Race, lane, text));
        }
        let access =
            AsyncAccess { range: range.clone(), kind: AsyncKind::Load, agent: barrier.agent, time: NEVER, line };
        memory.shared.begin(access, warp, lane)?;
        barrier.copies.push_back(Load { source, range, lane });
        Ok(())
    }

    /// Lets copies come that a phase waits for, once all threads have arrived.
    ///
    /// # Errors
    /// Reads that the launch may not make.
    pub fn let_come(&mut self, memory: &mut Memory<'_>, place: usize) -> Result<(), Fault> {
        let Some(barrier) = self.barriers.get_mut(&place) else { return Ok(()) };
        while barrier.pending == 0
            && barrier.expected != barrier.come
            && let Some(load) = barrier.copies.pop_front()
        {
            load.source.load(memory, load.range.clone(), load.lane)?;
            memory.shared.arrive(&load.range, barrier.agent, barrier.phase + 1);
            barrier.come += load.range.len() as i64;
            barrier.settle();
        }
        Ok(())
    }

    /// The state of an mbarrier in words.
    pub fn described(&self, place: usize) -> String {
        let Some(barrier) = self.barriers.get(&place) else { return format!("no mbarrier at {place:#x}") };
        let begun: usize = barrier.copies.iter().map(|load| load.range.len()).sum();
        let arrived = barrier.arrivals - barrier.pending;
        format!(
            "the mbarrier at {place:#x}, whose phase {} has {arrived} of {} arrivals and {} of {} expected bytes, \
             with {begun} more in copies that have begun",
            barrier.phase, barrier.arrivals, barrier.come, barrier.expected
        )
    }

    /// The first mbarrier whose copies have not come.
    pub fn unfinished(&self) -> Option<usize> {
        self.barriers.iter().find(|(_, barrier)| !barrier.copies.is_empty()).map(|(place, _)| *place)
    }
}
