//! The barrier of a cluster, which here is one block.

use super::fault::{Fault, FaultKind};
use super::registers::Lanes;
use super::shared::Shared;
use super::shared_async::Departed;

/// The barrier of a cluster of one block.
#[derive(Debug, Default)]
pub struct ClusterBarrier {
    /// The knowledge of each warp that has arrived in the current phase.
    arrived: Vec<Option<Departed>>,
    /// Arrivals of each warp, and phases that it has waited for.
    counts: Vec<[u32; 2]>,
    /// Phases that have ended, and the knowledge of their warps.
    phases: u32,
    released: Option<Departed>,
    /// Warps that have ended.
    has_ended: Vec<bool>,
}

impl ClusterBarrier {
    /// A barrier for `warps` warps.
    pub fn new(warps: usize) -> ClusterBarrier {
        ClusterBarrier {
            arrived: vec![None; warps],
            counts: vec![[0; 2]; warps],
            phases: 0,
            released: None,
            has_ended: vec![false; warps],
        }
    }

    /// A warp arrives.
    ///
    /// # Errors
    /// A warp that has arrived and not waited.
    pub fn arrive(&mut self, warp: usize, departed: Departed) -> Result<(), Fault> {
        let [arrivals, waits] = &mut self.counts[warp];
        if arrivals != waits {
            let text = "a warp arrives twice at the barrier of its cluster without a wait between";
            return Err(Fault::new(FaultKind::Barrier, text));
        }
        *arrivals += 1;
        self.arrived[warp] = Some(departed);
        self.settle();
        Ok(())
    }

    /// A warp has ended, and is waited for no longer.
    pub fn leave(&mut self, warp: usize) {
        self.has_ended[warp] = true;
        self.settle();
    }

    fn settle(&mut self) {
        let is_missing = |warp: usize| self.arrived[warp].is_none() && !self.has_ended[warp];
        if (0..self.arrived.len()).any(is_missing) {
            return;
        }
        for departed in self.arrived.iter_mut().filter_map(Option::take) {
            match &mut self.released {
                Some(released) => released.join(&departed),
                released @ None => *released = Some(departed),
            }
        }
        self.phases += 1;
    }

    /// Whether all warps have arrived; then a warp is in order after them.
    ///
    /// # Errors
    /// A warp that has not arrived.
    pub fn wait(&mut self, warp: usize, live: Lanes, shared: &mut Shared) -> Result<bool, Fault> {
        let [arrivals, waits] = &mut self.counts[warp];
        if arrivals == waits {
            let lane = live.trailing_zeros() as usize % 32;
            let text = "a warp waits at the barrier of its cluster without having arrived";
            return Err(Fault::of_lane(FaultKind::Barrier, lane, text));
        }
        if self.phases < *arrivals {
            return Ok(false);
        }
        *waits += 1;
        if let Some(released) = &self.released {
            shared.acquire(warp, released);
        }
        Ok(true)
    }
}
