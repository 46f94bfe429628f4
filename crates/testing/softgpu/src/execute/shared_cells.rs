//! The last accesses of each place in shared memory, and their order.

use std::ops::Range;

use super::fault::{Fault, FaultKind};
use super::global_order::Kind;

/// The most warps of a block.
pub const MAX_WARPS: usize = 32;

/// For each warp of a block, the last of its times that comes before.
pub type Knowledge = [u32; MAX_WARPS];

/// A thread at a time of its warp; time 0 is never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    pub time: u32,
    pub warp: u8,
    /// The lane, or 32 for several.
    pub lane: u8,
}

const SEVERAL_LANES: u8 = 32;

/// The last accesses of a few bytes.
#[derive(Clone, Debug, Default)]
struct Cell {
    writer: Moment,
    /// Reads since, of which none comes before another: at most one of each warp.
    readers: Vec<Moment>,
}

/// The last accesses of all bytes.
#[derive(Debug)]
pub struct SharedCells {
    /// Bytes of the memory.
    bytes: usize,
    /// A cell has `1 << shift` bytes: as many as the smallest access so far, at most 4.
    shift: u32,
    /// Empty until the first access is noted.
    cells: Vec<Cell>,
    /// For each warp, the last time of every warp that comes before now.
    known: Vec<Knowledge>,
}

impl SharedCells {
    /// Memory without accesses.
    pub fn new(bytes: usize, warps: usize) -> SharedCells {
        let mut known = vec![[0; MAX_WARPS]; warps];
        for (warp, known) in known.iter_mut().enumerate() {
            known[warp] = 1;
        }
        SharedCells { bytes, shift: 2, cells: vec![], known }
    }

    /// Warps of the block.
    pub fn warps(&self) -> usize {
        self.known.len()
    }

    /// A lane at its warp's time.
    pub fn now(&self, warp: usize, lane: usize) -> Moment {
        Moment { time: self.known[warp][warp], warp: warp as u8, lane: lane as u8 }
    }

    /// Returns what a warp knows, and begins its next time.
    pub fn depart(&mut self, warp: usize) -> Knowledge {
        let known = self.known[warp];
        self.known[warp][warp] += 1;
        known
    }

    /// Orders everything that `warps` and the owners of `departed` have done before all that `warps` do next.
    pub fn synchronize(&mut self, warps: &[usize], departed: &[Knowledge]) {
        let mut joined = [0; MAX_WARPS];
        let all = warps.iter().map(|warp| &self.known[*warp]).chain(departed);
        for known in all {
            for (joined, known) in joined.iter_mut().zip(known) {
                *joined = (*joined).max(*known);
            }
        }
        for warp in warps {
            self.known[*warp] = joined;
            self.known[*warp][*warp] += 1;
        }
    }

    /// A warp learns what others knew when they arrived.
    pub fn acquire(&mut self, warp: usize, known: &Knowledge) {
        let own = self.known[warp][warp];
        self.known[warp].iter_mut().zip(known).for_each(|(own, other)| *own = (*own).max(*other));
        self.known[warp][warp] = own;
    }

    /// Whether a moment comes before another one.
    pub fn is_before(&self, moment: Moment, now: Moment) -> bool {
        if moment.warp == now.warp {
            moment.time < now.time || moment.lane == now.lane
        } else {
            moment.time <= self.known[usize::from(now.warp)][usize::from(moment.warp)]
        }
    }

    fn cells_of(&mut self, offset: usize, bytes: usize) -> std::ops::Range<usize> {
        if self.cells.is_empty() {
            self.cells = vec![Cell::default(); self.bytes.div_ceil(1 << self.shift)];
        }
        let wanted = (offset | bytes).trailing_zeros();
        while self.shift > wanted {
            self.shift -= 1;
            self.cells = self.cells.iter().flat_map(|cell| [cell.clone(), cell.clone()]).collect();
        }
        offset >> self.shift..(offset + bytes) >> self.shift
    }

    /// Checks a read.
    ///
    /// # Errors
    /// Bytes that another thread writes at the same time.
    pub fn check_read(&mut self, offset: usize, bytes: usize, now: Moment) -> Result<(), Fault> {
        for index in self.cells_of(offset, bytes) {
            let writer = self.cells[index].writer;
            if writer.time > 0 && !self.is_before(writer, now) {
                return Err(race(offset, now, "is written", writer, "read"));
            }
        }
        Ok(())
    }

    /// Records a read, and forgets the reads that it is ordered after.
    pub fn note_read(&mut self, offset: usize, bytes: usize, now: Moment) {
        for index in self.cells_of(offset, bytes) {
            let mut readers = std::mem::take(&mut self.cells[index].readers);
            readers.retain(|reader| !self.is_before(*reader, now));
            match readers.iter_mut().find(|reader| reader.warp == now.warp) {
                Some(reader) => reader.lane = SEVERAL_LANES,
                None => readers.push(now),
            }
            self.cells[index].readers = readers;
        }
    }

    /// Checks a write that changes something.
    ///
    /// # Errors
    /// Bytes that another thread reads or writes at the same time.
    pub fn check_write(&mut self, offset: usize, bytes: usize, now: Moment) -> Result<(), Fault> {
        for index in self.cells_of(offset, bytes) {
            let cell = &self.cells[index];
            if cell.writer.time > 0 && !self.is_before(cell.writer, now) {
                return Err(race(offset, now, "is written", cell.writer, "written"));
            }
            if let Some(reader) = cell.readers.iter().find(|reader| !self.is_before(**reader, now)) {
                return Err(race(offset, now, "is read", *reader, "written"));
            }
        }
        Ok(())
    }

    /// Checks an asynchronous access that starts now. `fenced` are the times whose writes it sees.
    ///
    /// # Errors
    /// Bytes that a thread accesses at the same time, or has written without a fence between.
    pub fn check_asynchronous(
        &mut self,
        range: Range<usize>,
        kind: Kind,
        now: Moment,
        fenced: &Knowledge,
        own: &str,
    ) -> Result<(), Fault> {
        let offset = range.start;
        for index in self.cells_of(offset, range.len()) {
            let cell = &self.cells[index];
            let at = index << self.shift;
            if cell.writer.time > 0 && !self.is_before(cell.writer, now) {
                return Err(race(at, now, "is written", cell.writer, own));
            }
            if cell.writer.time > fenced[usize::from(cell.writer.warp)] {
                let thread = thread_of(cell.writer);
                let text = format!(
                    "shared memory at {at:#x} is written by {thread} and {own} here, without a fence.proxy.async between"
                );
                return Err(Fault::of_lane(FaultKind::Race, usize::from(now.lane), text));
            }
            if let (Kind::Write, Some(reader)) =
                (kind, cell.readers.iter().find(|reader| !self.is_before(**reader, now)))
            {
                return Err(race(at, now, "is read", *reader, own));
            }
        }
        Ok(())
    }

    /// Forgets all accesses of bytes.
    pub fn clear(&mut self, range: Range<usize>) {
        for index in self.cells_of(range.start, range.len()) {
            self.cells[index] = Cell::default();
        }
    }

    /// Records a write.
    pub fn note_write(&mut self, offset: usize, bytes: usize, now: Moment) {
        for index in self.cells_of(offset, bytes) {
            self.cells[index] = Cell { writer: now, readers: vec![] };
        }
    }
}

fn thread_of(moment: Moment) -> String {
    if moment.lane == SEVERAL_LANES {
        format!("several threads, one of warp {}", moment.warp)
    } else {
        format!("thread {} of the block", usize::from(moment.warp) * 32 + usize::from(moment.lane))
    }
}

fn race(offset: usize, now: Moment, other: &str, moment: Moment, own: &str) -> Fault {
    let thread = thread_of(moment);
    let text = format!("shared memory at {offset:#x} {other} by {thread} and {own} here, without a barrier between");
    Fault::of_lane(FaultKind::Race, usize::from(now.lane), text)
}
