//! Copies of boxes and of consecutive bytes between global and shared memory.
//!
//! A copy to global memory reads and writes as late as it may: it reads when its thread waits for the read, and writes
//! when it waits for the whole, or at the end of the block.

use std::ops::Range;

use super::async_order::{Agent, AsyncAccess, AsyncKind};
use super::boxes::PlacedBox;
use super::fault::{Fault, FaultKind};
use super::memory::Memory;
use super::registers::{LANES, Lanes, is_set};
use crate::code::BulkGroup;
use crate::ptx::Space;

/// The memory at the other side of shared memory.
#[derive(Clone, Debug)]
pub enum Source {
    /// A box of a tensor.
    Box(Box<PlacedBox>),
    /// Consecutive bytes from an address on.
    Bytes(u64),
}

impl Source {
    /// Copies to shared memory.
    ///
    /// # Errors
    /// Reads that the launch may not make.
    pub fn load(&self, memory: &mut Memory<'_>, range: Range<usize>, lane: usize) -> Result<(), Fault> {
        match self {
            Source::Box(placed) => placed.load(memory, lane),
            Source::Bytes(address) => {
                let bytes = memory.read_unaligned(Space::Global, *address, range.len(), lane)?.to_vec();
                memory.shared.write_asynchronously(range.start, &bytes);
                Ok(())
            }
        }
    }

    fn read(&self, memory: &Memory<'_>, range: &Range<usize>, lane: usize) -> Result<Vec<u8>, Fault> {
        match self {
            Source::Box(placed) => placed.read(memory, lane),
            Source::Bytes(_) => Ok(memory.shared.read_asynchronously(range.start, range.len(), lane)?.to_vec()),
        }
    }

    fn store(&self, memory: &mut Memory<'_>, bytes: &[u8], lane: usize) -> Result<(), Fault> {
        match self {
            Source::Box(placed) => placed.store(bytes, memory, lane),
            Source::Bytes(address) => memory.write_unaligned(Space::Global, *address, bytes, lane),
        }
    }
}

/// The copies to global memory of a warp's threads that have not ended.
#[derive(Debug, Default)]
pub struct Stores {
    stores: Vec<Store>,
    /// Groups that each thread has ended.
    committed: [u32; LANES],
    /// Copies so far.
    begun: u32,
}

#[derive(Debug)]
struct Store {
    lane: usize,
    /// The group's number, once it is known.
    group: Option<u32>,
    /// The number of the copy, which is the agent's time.
    time: u32,
    to: Source,
    from: Range<usize>,
    line: u32,
    /// The bytes that were read.
    bytes: Option<Vec<u8>>,
}

impl Stores {
    /// Begins a copy.
    ///
    /// # Errors
    /// Bytes that others access at the same time, or that threads have written without a fence.
    pub fn begin(
        &mut self,
        memory: &mut Memory<'_>,
        to: Source,
        from: Range<usize>,
        line: u32,
        lane: usize,
    ) -> Result<(), Fault> {
        self.begun += 1;
        let (agent, warp) = (Agent::stores(memory.warp), memory.warp);
        let access = AsyncAccess { range: from.clone(), kind: AsyncKind::Store, agent, time: self.begun, line };
        memory.shared.begin(access, warp, lane)?;
        self.stores.push(Store { lane, group: None, time: self.begun, to, from, line, bytes: None });
        Ok(())
    }

    /// Ends groups, or waits for them.
    ///
    /// # Errors
    /// An access that the launch may not make.
    pub fn group(&mut self, memory: &mut Memory<'_>, lanes: Lanes, group: BulkGroup) -> Result<(), Fault> {
        match group {
            BulkGroup::Commit => {
                for store in self.stores.iter_mut().filter(|store| store.group.is_none() && is_set(lanes, store.lane)) {
                    store.group = Some(self.committed[store.lane]);
                }
                super::registers::lanes_in(lanes).for_each(|lane| self.committed[lane] += 1);
                Ok(())
            }
            BulkGroup::WaitRead(open) => self.read(memory, lanes, open),
            BulkGroup::Wait(open) => {
                self.read(memory, lanes, open)?;
                let committed = self.committed;
                let (due, rest) =
                    self.stores.drain(..).partition(|store: &Store| is_due(store, lanes, open, &committed));
                self.stores = rest;
                write_all(due, memory)
            }
        }
    }

    fn read(&mut self, memory: &mut Memory<'_>, lanes: Lanes, open: u32) -> Result<(), Fault> {
        let committed = self.committed;
        let warp = memory.warp;
        for store in self.stores.iter_mut().filter(|store| is_due(store, lanes, open, &committed)) {
            if store.bytes.is_none() {
                store.bytes = Some(store.to.read(memory, &store.from, store.lane)?);
            }
            memory.shared.observe(warp, Agent::stores(warp), store.time);
        }
        Ok(())
    }

    /// Writes what was read, at the end of the block.
    ///
    /// # Errors
    /// A copy whose read was not waited for: the block's memory is gone.
    pub fn end(&mut self, memory: &mut Memory<'_>) -> Result<(), Fault> {
        if let Some(store) = self.stores.iter().find(|store| store.bytes.is_none()) {
            let text = format!(
                "the block ends while the copy of PTX line {} reads its shared memory: use cp.async.bulk.wait_group.read",
                store.line
            );
            return Err(Fault::of_lane(FaultKind::Race, store.lane, text));
        }
        write_all(self.stores.drain(..).collect(), memory)
    }
}

fn is_due(store: &Store, lanes: Lanes, open: u32, committed: &[u32; LANES]) -> bool {
    is_set(lanes, store.lane) && store.group.is_some_and(|group| group + open < committed[store.lane])
}

fn write_all(stores: Vec<Store>, memory: &mut Memory<'_>) -> Result<(), Fault> {
    for store in stores {
        if let Some(bytes) = &store.bytes {
            store.to.store(memory, bytes, store.lane)?;
        }
    }
    Ok(())
}
