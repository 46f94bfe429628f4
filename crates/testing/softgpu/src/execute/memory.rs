//! The memory that a warp sees, with the checks of every access.

use super::fault::{Fault, FaultKind};
use super::global_order::{Accessor, BlockOrder, Disorder, Kind, Reads};
use super::local::{Local, outside};
use super::runs::{Run, Runs};
use super::shared::Shared;
use super::transfer::{check_alignment, place};
use crate::checks::{AccessRanges, Check, Checks};
use crate::memory::global::{Allocation, Global};
use crate::memory::windows::window_start;
use crate::ptx::Space;
use crate::streams::WorkOrder;

/// The memory that a warp sees.
#[derive(Debug)]
pub struct Memory<'a> {
    /// The memory of the GPU.
    pub global: &'a mut Global,
    /// The allocation that was found last.
    pub last: &'a mut usize,
    /// The arguments.
    pub parameters: &'a [u8],
    /// The memory of the block.
    pub shared: &'a mut Shared,
    /// The memory of the warp's threads.
    pub local: &'a mut Local,
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

impl Memory<'_> {
    /// The number of an allocation, and the offset in it.
    fn find(&mut self, address: u64, bytes: usize, lane: usize) -> Result<(usize, usize), Fault> {
        let inside = |allocation: &Allocation| allocation.offset_of(address, bytes);
        if let Some(offset) = self.global.get(*self.last).and_then(inside) {
            return Ok((*self.last, offset));
        }
        let found = self.global.find(address, bytes);
        let offset = found.and_then(|index| self.global.get(index)).and_then(inside);
        match (found, offset) {
            (Some(index), Some(offset)) => {
                *self.last = index;
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
            Space::Local => self.local.read(address, bytes, lane, self.checks.local),
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
        check_alignment(place(space, address).1, from.len(), lane)?;
        self.write_unaligned(space, address, from, lane)
    }

    /// Writes the bytes of a lane, at any address.
    ///
    /// # Errors
    /// An access that the lane may not make.
    pub fn write_unaligned(&mut self, space: Space, address: u64, from: &[u8], lane: usize) -> Result<(), Fault> {
        let bytes = from.len();
        let (space, address) = place(space, address);
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
            Space::Local => self.local.write(address, from, lane)?,
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
        self.order_of(index, offset, bytes, kind, is_same).map_err(|disorder| {
            let start = self.global.get(index).map_or(0, |allocation| allocation.start);
            let address = start + offset as u64;
            match disorder {
                Disorder::Conflict(conflict) => conflict.fault(self.order, address, bytes, kind, lane),
                Disorder::Unwritten => {
                    let text = format!("{bytes} bytes at {address:#x} are read, but were never written");
                    Fault::of_lane(FaultKind::Unwritten, lane, text)
                }
            }
        })
    }

    #[inline(always)]
    fn order_of(
        &mut self,
        index: usize,
        offset: usize,
        bytes: usize,
        kind: Kind,
        is_same: bool,
    ) -> Result<(), Disorder> {
        if self.checks.global == Check::Off {
            return Ok(());
        }
        let Some(allocation) = self.global.get_mut(index) else { return Ok(()) };
        if kind == Kind::Write {
            self.blocks.write();
        }
        let is_strict = self.checks.unwritten_global == Check::On && !allocation.is_module;
        let reads = if is_strict { Reads::OfWritten } else { Reads::OfAnything };
        let accessor = Accessor { order: self.order, blocks: self.blocks, block: self.block, reads };
        accessor.touch(&mut allocation.shadow, offset, bytes, kind, is_same)
    }

    /// Checks and notes an access of all lanes of an instruction where that needs no look at each; returns the memory
    /// and the address of its first byte. `None` where lanes must be looked at one by one, which names the fault if
    /// there is one.
    #[inline(always)]
    fn access_all(&mut self, space: Space, runs: &Runs, kind: Kind) -> Option<(Backing, u64)> {
        let first = runs.each().first()?;
        let (found, _) = place(space, first.address);
        match found {
            Space::Global | Space::Generic | Space::Const => self.global_access_all(runs, kind),
            Space::Shared => {
                let start = if space == Space::Generic { window_start(Space::Shared) } else { 0 };
                let moved;
                let runs = if start == 0 {
                    runs
                } else {
                    moved = runs.after_address(start)?;
                    &moved
                };
                let is_in_order = match (self.checks.shared, kind) {
                    (Check::Off, _) => runs.each().iter().all(|run| self.shared.is_inside(run)),
                    (Check::On, Kind::Read) => self.shared.reads_all(runs, self.warp),
                    (Check::On, Kind::Write | Kind::Atomic) => self.shared.writes_all(runs, self.warp),
                };
                is_in_order.then_some((Backing::Shared, start))
            }
            Space::Param => {
                let start = if space == Space::Generic { window_start(Space::Param) } else { 0 };
                let size = self.parameters.len() as u64;
                let is_inside = |run: &Run| {
                    run.address >= start && (run.address - start).saturating_add(run.bytes() as u64) <= size
                };
                let is_read = kind == Kind::Read && runs.each().iter().all(is_inside);
                is_read.then_some((Backing::Parameters, start))
            }
            Space::Local => None,
        }
    }

    #[inline(always)]
    fn global_access_all(&mut self, runs: &Runs, kind: Kind) -> Option<(Backing, u64)> {
        let first = runs.each().first()?;
        let (index, _) = self.find(first.address, first.bytes(), 0).ok()?;
        let allocation = self.global.get(index)?;
        if allocation.is_constant && kind != Kind::Read {
            return None;
        }
        let start = allocation.start;
        for run in runs.each() {
            let bytes = run.bytes();
            let offset = self.global.get(index)?.offset_of(run.address, bytes)?;
            self.declared(run.address, bytes, kind, 0).ok()?;
            self.order_of(index, offset, bytes, kind, false).ok()?;
        }
        Some((Backing::Global(index), start))
    }

    /// The memory that all lanes of an instruction read, and the address of its first byte.
    #[inline(always)]
    pub fn read_all(&mut self, space: Space, runs: &Runs) -> Option<(&[u8], u64)> {
        let (backing, start) = self.access_all(space, runs, Kind::Read)?;
        let bytes = match backing {
            Backing::Global(index) => &*self.global.get(index)?.bytes,
            Backing::Shared => &*self.shared.bytes,
            Backing::Parameters => self.parameters,
        };
        Some((bytes, start))
    }

    /// The memory that all lanes of an instruction write, and the address of its first byte.
    #[inline(always)]
    pub fn write_all(&mut self, space: Space, runs: &Runs) -> Option<(&mut [u8], u64)> {
        let (backing, start) = self.access_all(space, runs, Kind::Write)?;
        let bytes = match backing {
            Backing::Global(index) => &mut *self.global.get_mut(index)?.bytes,
            Backing::Shared => &mut *self.shared.bytes,
            Backing::Parameters => return None,
        };
        Some((bytes, start))
    }
}

/// The memory of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backing {
    /// An allocation.
    Global(usize),
    /// The memory of the block.
    Shared,
    /// The arguments.
    Parameters,
}
