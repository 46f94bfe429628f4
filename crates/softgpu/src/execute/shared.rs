//! Shared memory of a block, and the order of accesses to it.

use super::fault::{Fault, FaultKind};

/// The most warps of a block.
pub const MAX_WARPS: usize = 32;

/// For each warp of a block, the last of its times that comes before.
pub type Knowledge = [u32; MAX_WARPS];

/// Shared memory of a block.
#[derive(Debug)]
pub struct Shared {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// A cell has `1 << shift` bytes: as many as the smallest access so far, at most 4.
    shift: u32,
    cells: Vec<Cell>,
    /// For each warp, the last time of every warp that comes before now.
    known: Vec<Knowledge>,
}

/// The last accesses of a few bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    writer: Moment,
    reader: Moment,
    /// A bit for each warp that has read since.
    readers: u32,
}

/// A thread at a time of its warp; time 0 is never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    time: u32,
    warp: u8,
    /// The lane, or 32 for several.
    lane: u8,
}

const SEVERAL_LANES: u8 = 32;

impl Shared {
    /// Memory that nothing has written.
    pub fn new(bytes: usize, warps: usize) -> Shared {
        let mut known = vec![[0; MAX_WARPS]; warps];
        for (warp, known) in known.iter_mut().enumerate() {
            known[warp] = 1;
        }
        Shared { bytes: vec![0; bytes], shift: 2, cells: vec![Cell::default(); bytes.div_ceil(4)], known }
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

    fn is_before(&self, moment: Moment, warp: usize, lane: usize) -> bool {
        let now = self.known[warp][usize::from(moment.warp)];
        if usize::from(moment.warp) == warp {
            moment.time < now || usize::from(moment.lane) == lane
        } else {
            moment.time <= now
        }
    }

    fn cells_of(&mut self, offset: usize, bytes: usize) -> std::ops::Range<usize> {
        let wanted = (offset | bytes).trailing_zeros();
        while self.shift > wanted {
            self.shift -= 1;
            self.cells = self.cells.iter().flat_map(|cell| [*cell, *cell]).collect();
        }
        offset >> self.shift..(offset + bytes) >> self.shift
    }

    fn now(&self, warp: usize, lane: usize) -> Moment {
        Moment { time: self.known[warp][warp], warp: warp as u8, lane: lane as u8 }
    }

    /// Checks a read.
    ///
    /// # Errors
    /// Bytes that nothing has written, or that another thread writes at the same time.
    pub fn reads(&mut self, offset: usize, bytes: usize, warp: usize, lane: usize) -> Result<(), Fault> {
        let now = self.now(warp, lane);
        for index in self.cells_of(offset, bytes) {
            let cell = self.cells[index];
            if cell.writer.time == 0 {
                let text = format!("{bytes} bytes of shared memory at {offset:#x} are read, but were never written");
                return Err(Fault::of_lane(FaultKind::Unwritten, lane, text));
            }
            if !self.is_before(cell.writer, warp, lane) {
                return Err(race(offset, lane, "is written", cell.writer, "read"));
            }
            let is_alone = cell.reader.time == 0 || cell.reader == now || self.is_before(cell.reader, warp, lane);
            let cell = &mut self.cells[index];
            if is_alone {
                cell.reader = now;
                cell.readers = 1 << warp;
            } else {
                let time = cell.reader.time.max(now.time);
                cell.reader = Moment { time, warp: warp as u8, lane: SEVERAL_LANES };
                cell.readers |= 1 << warp;
            }
        }
        Ok(())
    }

    /// Checks a write. `is_same` tells that it changes nothing.
    ///
    /// # Errors
    /// Bytes that another thread reads or writes at the same time.
    pub fn writes(
        &mut self,
        offset: usize,
        bytes: usize,
        warp: usize,
        lane: usize,
        is_same: bool,
    ) -> Result<(), Fault> {
        let now = self.now(warp, lane);
        for index in self.cells_of(offset, bytes) {
            let cell = self.cells[index];
            if cell.writer.time > 0 && !self.is_before(cell.writer, warp, lane) && !is_same {
                return Err(race(offset, lane, "is written", cell.writer, "written"));
            }
            let mut readers = (0..MAX_WARPS).filter(|reader| cell.readers >> reader & 1 == 1);
            let is_read = |reader: usize| {
                let moment = Moment { warp: reader as u8, ..cell.reader };
                !self.is_before(moment, warp, lane)
            };
            if !is_same && readers.any(is_read) {
                return Err(race(offset, lane, "is read", cell.reader, "written"));
            }
            self.cells[index] = Cell { writer: now, reader: Moment::default(), readers: 0 };
        }
        Ok(())
    }

    /// Marks bytes that an atomic reads and writes; atomics do not race with each other.
    pub fn changes(&mut self, offset: usize, bytes: usize, warp: usize, lane: usize) {
        let now = self.now(warp, lane);
        for index in self.cells_of(offset, bytes) {
            self.cells[index] = Cell { writer: now, reader: Moment::default(), readers: 0 };
        }
    }
}

fn race(offset: usize, lane: usize, other: &str, moment: Moment, own: &str) -> Fault {
    let thread = if moment.lane == SEVERAL_LANES {
        format!("several threads, one of warp {}", moment.warp)
    } else {
        format!("thread {} of the block", usize::from(moment.warp) * 32 + usize::from(moment.lane))
    };
    let text = format!("shared memory at {offset:#x} {other} by {thread} and {own} here, without a barrier between");
    Fault::of_lane(FaultKind::Race, lane, text)
}
