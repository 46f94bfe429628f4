//! The memory that a warp sees, with the checks of every access.

use std::collections::{HashMap, HashSet};

use super::fault::{Fault, FaultKind};
use super::shared::Shared;
use super::transfer::{check_alignment, place};
use crate::checks::{AccessRanges, Check, Checks};
use crate::memory::global::{Allocation, Global};
use crate::memory::shadow::{ATOMIC, Cell, SEVERAL};
use crate::ptx::Space;
use crate::streams::WorkOrder;

/// Local memory of a warp's threads.
#[derive(Debug)]
pub struct Local {
    bytes: Vec<u8>,
    is_written: Vec<bool>,
    bytes_per_thread: usize,
}

impl Local {
    /// Memory that nothing has written.
    pub fn new(bytes_per_thread: usize) -> Local {
        let bytes = bytes_per_thread * 32;
        Local { bytes: vec![0; bytes], is_written: vec![false; bytes], bytes_per_thread }
    }

    fn range(&self, address: u64, bytes: usize, lane: usize) -> Result<std::ops::Range<usize>, Fault> {
        let size = self.bytes_per_thread;
        match usize::try_from(address) {
            Ok(offset) if offset.saturating_add(bytes) <= size => {
                Ok(lane * size + offset..lane * size + offset + bytes)
            }
            _ => Err(outside("local memory of a thread", address, bytes, size, lane)),
        }
    }
}

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

    fn atomic(&mut self, address: u64, block: u32) {
        let place = self.released.entry(address).or_default();
        self.acquired.extend(place.iter());
        if !self.is_unfenced {
            place.insert(block);
            place.extend(&self.acquired);
        }
    }
}

/// The memory that a warp sees.
#[derive(Debug)]
pub struct Memory<'a> {
    /// That of the GPU.
    pub global: &'a mut Global,
    /// The allocation that was found last.
    pub last: usize,
    /// The arguments.
    pub parameters: &'a [u8],
    /// That of the block.
    pub shared: &'a mut Shared,
    /// That of the warp's threads.
    pub local: &'a mut Local,
    /// The checks.
    pub checks: &'a Checks,
    /// The ranges that the launch may use; all memory where there are none.
    pub ranges: Option<&'a AccessRanges>,
    /// The launch among all work.
    pub order: &'a WorkOrder,
    /// The order between blocks.
    pub blocks: &'a mut BlockOrder,
    /// The block's number in the launch, from 1 on.
    pub block: u32,
    /// The warp's number in the block.
    pub warp: usize,
}

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Atomic,
}

fn outside(name: &str, address: u64, bytes: usize, size: usize, lane: usize) -> Fault {
    let text = format!("{bytes} bytes at {address:#x} are outside of {name}, which has {size} bytes");
    Fault::of_lane(FaultKind::Access, lane, text)
}

impl Memory<'_> {
    /// The number of an allocation, and the offset in it.
    fn find(&mut self, address: u64, bytes: usize, lane: usize) -> Result<(usize, usize), Fault> {
        let inside = |allocation: &Allocation| allocation.offset_of(address, bytes);
        if let Some(offset) = self.global.get(self.last).and_then(inside) {
            return Ok((self.last, offset));
        }
        let found = self.global.find(address, bytes);
        let offset = found.and_then(|index| self.global.get(index)).and_then(inside);
        match (found, offset) {
            (Some(index), Some(offset)) => {
                self.last = index;
                Ok((index, offset))
            }
            _ => {
                let text = format!("{bytes} bytes at {address:#x} have no memory: {}", self.global.nearest(address));
                Err(Fault::of_lane(FaultKind::Access, lane, text))
            }
        }
    }

    fn declared(&self, address: u64, bytes: usize, kind: Kind, lane: usize) -> Result<(), Fault> {
        let Some(ranges) = self.ranges else { return Ok(()) };
        let is_allowed = match kind {
            Kind::Read => ranges.may_read(address, bytes),
            Kind::Write | Kind::Atomic => ranges.may_write(address, bytes),
        };
        // Variables of the module are memory of the kernel itself.
        if is_allowed
            || self.global.find(address, bytes).and_then(|index| self.global.get(index)).is_some_and(|a| a.is_module)
        {
            return Ok(());
        }
        let verb = if kind == Kind::Read { "reads" } else { "writes" };
        let text = format!("{verb} {bytes} bytes at {address:#x}, which the launch did not declare: {ranges}");
        Err(Fault::of_lane(FaultKind::Undeclared, lane, text))
    }

    fn shared_range(&self, address: u64, bytes: usize, lane: usize) -> Result<usize, Fault> {
        let size = self.shared.bytes.len();
        match usize::try_from(address) {
            Ok(offset) if offset.saturating_add(bytes) <= size => Ok(offset),
            _ => Err(outside("shared memory of the block", address, bytes, size, lane)),
        }
    }

    /// Checks the place of an access that comes later.
    ///
    /// # Errors
    /// An access that the lane may not make.
    pub fn check(&mut self, space: Space, address: u64, bytes: usize, align: usize, lane: usize) -> Result<(), Fault> {
        check_alignment(address, align, lane)?;
        if space == Space::Shared {
            self.shared_range(address, bytes, lane).map(|_| ())
        } else if bytes == 0 {
            Ok(())
        } else {
            self.find(address, bytes, lane).map(|_| ())
        }
    }

    /// The bytes that a lane reads.
    ///
    /// # Errors
    /// An access that the lane may not make.
    pub fn read(&mut self, space: Space, address: u64, bytes: usize, lane: usize) -> Result<&[u8], Fault> {
        check_alignment(address, bytes, lane)?;
        self.read_unaligned(space, address, bytes, lane)
    }

    /// The bytes that a lane reads, at any address.
    ///
    /// # Errors
    /// An access that the lane may not make.
    pub fn read_unaligned(&mut self, space: Space, address: u64, bytes: usize, lane: usize) -> Result<&[u8], Fault> {
        let (space, address) = place(space, address);
        match space {
            Space::Global | Space::Generic | Space::Const => {
                let (index, offset) = self.find(address, bytes, lane)?;
                self.declared(address, bytes, Kind::Read, lane)?;
                self.touch(index, offset, bytes, Kind::Read, lane, false)?;
                let allocation = self.global.get(index).map(|allocation| &allocation.bytes[offset..offset + bytes]);
                allocation.ok_or_else(|| outside("memory", address, bytes, 0, lane))
            }
            Space::Shared => {
                let offset = self.shared_range(address, bytes, lane)?;
                if self.checks.shared == Check::On {
                    self.shared.reads(offset, bytes, self.warp, lane)?;
                }
                Ok(&self.shared.bytes[offset..offset + bytes])
            }
            Space::Local => {
                let range = self.local.range(address, bytes, lane)?;
                let is_written = self.local.is_written[range.clone()].iter().all(|written| *written);
                if !is_written && self.checks.local == Check::On {
                    let text =
                        format!("{bytes} bytes of local memory at {address:#x} are read, but were never written");
                    return Err(Fault::of_lane(FaultKind::Unwritten, lane, text));
                }
                Ok(&self.local.bytes[range])
            }
            Space::Param => {
                let offset = usize::try_from(address).unwrap_or(usize::MAX);
                let size = self.parameters.len();
                let range = offset..offset.saturating_add(bytes);
                self.parameters.get(range).ok_or_else(|| outside("the arguments", address, bytes, size, lane))
            }
        }
    }

    /// Writes the bytes of a lane.
    ///
    /// # Errors
    /// An access that the lane may not make.
    pub fn write(&mut self, space: Space, address: u64, from: &[u8], lane: usize) -> Result<(), Fault> {
        let bytes = from.len();
        let (space, address) = place(space, address);
        check_alignment(address, bytes, lane)?;
        match space {
            Space::Global | Space::Generic | Space::Const => {
                let (index, offset) = self.find(address, bytes, lane)?;
                self.declared(address, bytes, Kind::Write, lane)?;
                let is_same =
                    self.global.get(index).is_some_and(|allocation| &allocation.bytes[offset..offset + bytes] == from);
                self.touch(index, offset, bytes, Kind::Write, lane, is_same)?;
                self.writable(index, address, bytes, lane)?[offset..offset + bytes].copy_from_slice(from);
            }
            Space::Shared => {
                let offset = self.shared_range(address, bytes, lane)?;
                let is_same = &self.shared.bytes[offset..offset + bytes] == from;
                if self.checks.shared == Check::On {
                    self.shared.writes(offset, bytes, self.warp, lane, is_same)?;
                }
                self.shared.bytes[offset..offset + bytes].copy_from_slice(from);
            }
            Space::Local => {
                let range = self.local.range(address, bytes, lane)?;
                self.local.is_written[range.clone()].fill(true);
                self.local.bytes[range].copy_from_slice(from);
            }
            Space::Param => {
                let text = format!("{bytes} bytes at {address:#x} are arguments, which kernels only read");
                return Err(Fault::of_lane(FaultKind::Access, lane, text));
            }
        }
        Ok(())
    }

    /// The bytes that an atomic of a lane reads and writes.
    ///
    /// # Errors
    /// An access that the lane may not make.
    pub fn change(&mut self, space: Space, address: u64, bytes: usize, lane: usize) -> Result<&mut [u8], Fault> {
        let (space, address) = place(space, address);
        check_alignment(address, bytes, lane)?;
        match space {
            Space::Global | Space::Generic | Space::Const => {
                let (index, offset) = self.find(address, bytes, lane)?;
                self.declared(address, bytes, Kind::Atomic, lane)?;
                self.touch(index, offset, bytes, Kind::Atomic, lane, false)?;
                self.blocks.atomic(address, self.block);
                Ok(&mut self.writable(index, address, bytes, lane)?[offset..offset + bytes])
            }
            Space::Shared => {
                let offset = self.shared_range(address, bytes, lane)?;
                self.shared.changes(offset, bytes, self.warp, lane);
                Ok(&mut self.shared.bytes[offset..offset + bytes])
            }
            Space::Local | Space::Param => {
                let text = format!("an atomic at {address:#x}, which is neither global nor shared memory");
                Err(Fault::of_lane(FaultKind::Access, lane, text))
            }
        }
    }

    fn writable(&mut self, index: usize, address: u64, bytes: usize, lane: usize) -> Result<&mut [u8], Fault> {
        match self.global.get_mut(index) {
            Some(allocation) if !allocation.is_constant => Ok(&mut allocation.bytes),
            _ => {
                let text = format!("{bytes} bytes at {address:#x} are constant memory, which kernels only read");
                Err(Fault::of_lane(FaultKind::Access, lane, text))
            }
        }
    }

    /// Checks an access to global memory against the last ones, and notes it.
    #[inline(always)]
    fn touch(
        &mut self,
        index: usize,
        offset: usize,
        bytes: usize,
        kind: Kind,
        lane: usize,
        is_same: bool,
    ) -> Result<(), Fault> {
        if self.checks.global == Check::Off {
            return Ok(());
        }
        let Some(allocation) = self.global.get_mut(index) else { return Ok(()) };
        let (order, block, strict) = (self.order, self.block, self.checks.unwritten_global);
        let blocks = &mut *self.blocks;
        if kind == Kind::Write {
            blocks.is_unfenced = true;
        }
        let start = allocation.start;
        let is_plain = allocation.is_module;
        let visited = allocation.shadow.visit(offset, bytes, |cells| {
            for cell in cells {
                let conflict = conflict(cell, order, blocks, block, kind, is_same);
                let unwritten = cell.writer_work == 0 && kind == Kind::Read && strict == Check::On && !is_plain;
                if conflict.is_some() || unwritten {
                    return Err(conflict);
                }
                note(cell, order.number, block, kind);
            }
            Ok(())
        });
        visited.map_err(|conflict| {
            let address = start + offset as u64;
            match conflict {
                Some(conflict) => conflict.fault(order, address, bytes, kind, lane),
                None => {
                    let text = format!("{bytes} bytes at {address:#x} are read, but were never written");
                    Fault::of_lane(FaultKind::Unwritten, lane, text)
                }
            }
        })
    }
}

/// Two accesses without an order.
#[derive(Clone, Copy, Debug)]
struct Conflict {
    was_write: bool,
    work: u32,
    block: u32,
}

impl Conflict {
    fn fault(self, order: &WorkOrder, address: u64, bytes: usize, kind: Kind, lane: usize) -> Fault {
        let verb = match kind {
            Kind::Read => "read",
            Kind::Write => "written",
            Kind::Atomic => "changed",
        };
        let other = if self.was_write { "was written" } else { "was read" };
        let by = match (self.work == order.number, order.stream(self.work)) {
            (true, _) if self.block & !ATOMIC == SEVERAL => "several blocks of this launch".to_string(),
            (true, _) => format!("block {} of this launch", (self.block & !ATOMIC) - 1),
            (false, Some(stream)) => format!("work of stream {}, for which this launch does not wait", stream.0),
            (false, None) => "work of another stream, for which this launch does not wait".to_string(),
        };
        let text = format!("{bytes} bytes at {address:#x}, {verb} here: {other} by {by}, without an order between");
        Fault::of_lane(FaultKind::Race, lane, text)
    }
}

#[inline(always)]
fn conflict(
    cell: &Cell,
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
fn note(cell: &mut Cell, work: u32, block: u32, kind: Kind) {
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
}

/// Notes an access of copies and fills, which have no blocks; returns the stream of work that has no order with it.
pub fn touch_range(
    global: &mut Global,
    address: u64,
    bytes: usize,
    order: &WorkOrder,
    is_write: bool,
) -> Result<(), Option<u64>> {
    let Some(index) = global.find(address, bytes) else { return Ok(()) };
    let Some(allocation) = global.get_mut(index) else { return Ok(()) };
    let Some(offset) = allocation.offset_of(address, bytes) else { return Ok(()) };
    let kind = if is_write { Kind::Write } else { Kind::Read };
    let blocks = BlockOrder::default();
    allocation.shadow.visit(offset, bytes, |cells| {
        for cell in cells {
            if let Some(conflict) = conflict(cell, order, &blocks, 1, kind, false) {
                return Err(order.stream(conflict.work).map(|stream| stream.0));
            }
            note(cell, order.number, 1, kind);
        }
        Ok(())
    })
}
