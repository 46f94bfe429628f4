//! The order of accesses to global memory: between pieces of work, and between the blocks of a launch.

use std::collections::{HashMap, HashSet};

use super::fault::{Fault, FaultKind};
use crate::memory::global::Global;
use crate::memory::shadow::{ATOMIC, Cell, Cells, SEVERAL, Shadow};
use crate::streams::{Origin, WorkOrder};

/// The order between the blocks of a launch that comes from atomics.
#[derive(Debug, Default)]
pub struct BlockOrder {
    /// For each place of an atomic, blocks whose writes come before it.
    released: HashMap<u64, HashSet<u32>>,
    /// Blocks whose writes the current block sees.
    acquired: HashSet<u32>,
    /// Whether the current block has written since its last fence.
    is_unfenced: bool,
}

impl BlockOrder {
    /// The next block begins.
    pub fn begin_block(&mut self) {
        self.acquired.clear();
        self.is_unfenced = false;
    }

    /// A fence for the whole GPU.
    pub fn fence(&mut self) {
        self.is_unfenced = false;
    }

    /// A write of the current block.
    pub fn write(&mut self) {
        self.is_unfenced = true;
    }

    /// An atomic of a block.
    pub fn atomic(&mut self, address: u64, block: u32) {
        let place = self.released.entry(address).or_default();
        self.acquired.extend(place.iter());
        if !self.is_unfenced {
            place.insert(block);
            place.extend(&self.acquired);
        }
    }
}

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
    /// Both at once.
    Atomic,
}

/// Who accesses global memory.
#[derive(Clone, Copy, Debug)]
pub struct Accessor<'a> {
    /// The work among all.
    pub order: &'a WorkOrder,
    /// The order between its blocks.
    pub blocks: &'a BlockOrder,
    /// The block's number in the launch, from 1 on.
    pub block: u32,
    /// Whether a read needs a write before it.
    pub reads: Reads,
}

/// The reads that are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// All.
    OfAnything,
    /// Reads of bytes that were written.
    OfWritten,
}

/// The reason why an access is out of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disorder {
    /// Another access.
    Conflict(Conflict),
    /// Nothing has written what is read.
    Unwritten,
}

impl Accessor<'_> {
    /// Checks an access against the last ones, and notes it. `is_same` tells that a write changes nothing.
    ///
    /// # Errors
    /// The first access without an order; cells before it are noted.
    #[inline(always)]
    pub fn touch(
        self,
        shadow: &mut Shadow,
        offset: usize,
        bytes: usize,
        kind: Kind,
        is_same: bool,
    ) -> Result<(), Disorder> {
        shadow.visit(offset, bytes, |mut cells| {
            if let Some(cell) = cells.uniform() {
                self.judge(cell, kind, is_same)?;
                let noted = noted(cell, self.order.number, self.block, kind);
                if noted != cell {
                    cells.fill(noted);
                }
                return Ok(());
            }
            self.touch_each(&mut cells, kind, is_same)
        })
    }

    fn touch_each(self, cells: &mut Cells<'_>, kind: Kind, is_same: bool) -> Result<(), Disorder> {
        for index in 0..cells.count() {
            let cell = cells.get(index);
            self.judge(cell, kind, is_same)?;
            cells.set(index, noted(cell, self.order.number, self.block, kind));
        }
        Ok(())
    }

    #[inline(always)]
    fn judge(self, cell: Cell, kind: Kind, is_same: bool) -> Result<(), Disorder> {
        if let Some(conflict) = conflict(cell, self.order, self.blocks, self.block, kind, is_same) {
            return Err(Disorder::Conflict(conflict));
        }
        if !(is_same && kind == Kind::Write) {
            self.note(cell, kind);
        }
        if kind == Kind::Read && cell.writer_work == 0 && self.reads == Reads::OfWritten {
            return Err(Disorder::Unwritten);
        }
        Ok(())
    }
}

impl Accessor<'_> {
    /// Notes the work that this access comes after.
    #[inline(always)]
    fn note(self, cell: Cell, kind: Kind) {
        let used = &self.order.used;
        let readers = if kind == Kind::Read { &used.other_readers } else { &used.readers };
        for (others, work) in [(&used.writers, cell.writer_work), (readers, cell.reader_work)] {
            if work != 0 && work != self.order.number {
                others.note(work);
            }
        }
    }
}

/// Two accesses without an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    was_write: bool,
    work: u32,
    block: u32,
}

impl Conflict {
    /// The fault of the later access.
    pub fn fault(self, order: &WorkOrder, address: u64, bytes: usize, kind: Kind, lane: usize) -> Fault {
        let verb = match kind {
            Kind::Read => "read",
            Kind::Write => "written",
            Kind::Atomic => "changed",
        };
        let other = if self.was_write { "was written" } else { "was read" };
        let by = match (self.work == order.number, order.origin(self.work)) {
            (true, _) if self.block & !ATOMIC == SEVERAL => "several blocks of this launch".to_string(),
            (true, _) => format!("block {} of this launch", (self.block & !ATOMIC) - 1),
            (false, Some(origin)) => format!("work of {origin}, for which this launch does not wait"),
            (false, None) => "work of another stream, for which this launch does not wait".to_string(),
        };
        let text = format!("{bytes} bytes at {address:#x}, {verb} here: {other} by {by}, without an order between");
        Fault::of_lane(FaultKind::Race, lane, text)
    }
}

#[inline(always)]
fn conflict(
    cell: Cell,
    order: &WorkOrder,
    blocks: &BlockOrder,
    block: u32,
    kind: Kind,
    is_same: bool,
) -> Option<Conflict> {
    if is_same && kind == Kind::Write {
        return None;
    }
    if cell.writer_work != 0 {
        let is_ordered = if cell.writer_work == order.number {
            let writer = cell.writer_block & !ATOMIC;
            let both_atomic = kind == Kind::Atomic && cell.writer_block & ATOMIC != 0;
            writer == block
                || both_atomic
                || blocks.acquired.contains(&writer)
                || (writer == SEVERAL && !blocks.acquired.is_empty())
        } else {
            order.follows(cell.writer_work)
        };
        if !is_ordered {
            return Some(Conflict { was_write: true, work: cell.writer_work, block: cell.writer_block });
        }
    }
    if kind != Kind::Read && cell.reader_work != 0 {
        let is_ordered = if cell.reader_work == order.number {
            let reader = cell.reader_block;
            reader == block || blocks.acquired.contains(&reader) || (reader == SEVERAL && !blocks.acquired.is_empty())
        } else {
            order.follows(cell.reader_work)
        };
        if !is_ordered {
            return Some(Conflict { was_write: false, work: cell.reader_work, block: cell.reader_block });
        }
    }
    None
}

#[inline(always)]
fn noted(mut cell: Cell, work: u32, block: u32, kind: Kind) -> Cell {
    match kind {
        Kind::Read => {
            let is_another = cell.reader_work == work && cell.reader_block != block;
            cell.reader_block = if is_another { SEVERAL } else { block };
            cell.reader_work = work;
        }
        Kind::Write => {
            cell.writer_work = work;
            cell.writer_block = block;
        }
        Kind::Atomic => {
            let is_another = cell.writer_work == work && cell.writer_block & !ATOMIC != block;
            cell.writer_block = ATOMIC | if is_another { SEVERAL } else { block };
            cell.writer_work = work;
        }
    }
    cell
}

/// Notes an access of copies and fills, which have no blocks.
///
/// # Errors
/// Work that has no order with it: whose it is, where that is known.
pub fn touch_range(
    global: &mut Global,
    address: u64,
    bytes: usize,
    order: &WorkOrder,
    is_write: bool,
) -> Result<(), Option<Origin>> {
    let Some(index) = global.find(address, bytes) else { return Ok(()) };
    let Some(allocation) = global.get_mut(index) else { return Ok(()) };
    let Some(offset) = allocation.offset_of(address, bytes) else { return Ok(()) };
    let kind = if is_write { Kind::Write } else { Kind::Read };
    let accessor = Accessor { order, blocks: &BlockOrder::default(), block: 1, reads: Reads::OfAnything };
    accessor.touch(&mut allocation.shadow, offset, bytes, kind, false).map_err(|disorder| match disorder {
        Disorder::Conflict(conflict) => order.origin(conflict.work),
        Disorder::Unwritten => None,
    })
}
