//! Shared memory of a block.
//!
//! A barrier of all warps orders everything before it before everything after it. So of the accesses since then, three
//! marks a byte tell what is in order without a look at threads: a read of bytes that were written before, a write of
//! bytes that nobody has touched since. Such accesses are only listed. The first access that the marks leave open
//! enters the list into cells that know the threads, and is judged there.

use super::async_order::AsyncOrder;
use super::fault::{Fault, FaultKind};
use super::global_order::Kind as AccessKind;
use super::runs::{Run, Runs};
use super::shared_async::Departed;
use super::shared_cells::{Moment, SharedCells};
use crate::memory::marks::Marks;

/// Accesses in the list before it is entered into the cells.
const MAX_LISTED: usize = 4096;

/// Shared memory of a block.
#[derive(Debug)]
pub struct Shared {
    pub bytes: Vec<u8>,
    /// Bytes that anything has written.
    pub(super) is_written: Marks,
    /// Bytes that were written since the last barrier of all warps.
    is_written_since: Marks,
    /// Bytes that were read since.
    is_read_since: Marks,
    /// Accesses since then that are not in the cells.
    listed: Vec<Listed>,
    pub(super) cells: SharedCells,
    /// Asynchronous accesses, in kernels that have some.
    pub(super) asynchronous: Option<Box<AsyncOrder>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
}

/// An access that is not in the cells.
#[derive(Clone, Copy, Debug)]
struct Listed {
    run: Run,
    kind: Kind,
    time: u32,
    warp: u8,
}

impl Shared {
    /// Memory that nothing has written.
    pub fn new(bytes: usize, warps: usize) -> Shared {
        Shared {
            bytes: vec![0; bytes],
            is_written: Marks::new(bytes),
            is_written_since: Marks::new(bytes),
            is_read_since: Marks::new(bytes),
            listed: vec![],
            cells: SharedCells::new(bytes, warps),
            asynchronous: None,
        }
    }

    /// Returns what a warp knows, and begins its next time.
    pub fn depart(&mut self, warp: usize) -> Departed {
        let asynchronous = self.asynchronous.as_ref().map(|order| Box::new(order.warps[warp].clone()));
        if asynchronous.is_some() {
            self.enter_listed();
        }
        Departed { known: self.cells.depart(warp), asynchronous }
    }

    /// Orders everything that `warps` and the owners of `departed` have done before all that `warps` do next.
    pub fn synchronize(&mut self, warps: &[usize], departed: &[Departed]) {
        if self.asynchronous.is_some() {
            self.synchronize_asynchronous(warps, departed);
        }
        if warps.len() == self.cells.warps() {
            self.listed.clear();
            self.is_written_since.clear();
            self.is_read_since.clear();
        } else if warps.len() > 1 || !departed.is_empty() {
            // The listed accesses were made with the knowledge from before.
            self.enter_listed();
        }
        let known: Vec<_> = departed.iter().map(|departed| departed.known).collect();
        self.cells.synchronize(warps, &known);
    }

    /// Joins the knowledge of warps about asynchronous accesses. Listed accesses are kept: an asynchronous access is
    /// judged by who made the others, also after a barrier of all warps.
    fn synchronize_asynchronous(&mut self, warps: &[usize], departed: &[Departed]) {
        self.enter_listed();
        let Some(order) = &mut self.asynchronous else { return };
        let Some(first) = warps.first() else { return };
        let mut joined = order.warps[*first].clone();
        warps.iter().for_each(|warp| joined.join(&order.warps[*warp]));
        departed.iter().flat_map(|departed| &departed.asynchronous).for_each(|known| joined.join(known));
        warps.iter().for_each(|warp| order.warps[*warp].clone_from(&joined));
    }

    /// Enters the list into the cells.
    pub(super) fn enter_listed(&mut self) {
        for Listed { run, kind, time, warp } in self.listed.drain(..) {
            for (lane, address) in run.places() {
                let now = Moment { time, warp, lane: lane as u8 };
                match kind {
                    Kind::Read => self.cells.note_read(address as usize, run.each.into(), now),
                    Kind::Write => self.cells.note_write(address as usize, run.each.into(), now),
                }
            }
        }
    }

    fn list(&mut self, run: &Run, kind: Kind, warp: usize) {
        if self.listed.len() == MAX_LISTED {
            self.enter_listed();
        }
        self.listed.push(Listed { run: *run, kind, time: self.cells.now(warp, 0).time, warp: warp as u8 });
    }

    /// Whether the memory has all bytes of a run.
    #[inline(always)]
    pub fn is_inside(&self, run: &Run) -> bool {
        run.address.saturating_add(run.bytes() as u64) <= self.bytes.len() as u64
    }

    fn is_read_in_order(&self, run: &Run) -> bool {
        let (offset, bytes) = (run.address as usize, run.bytes());
        self.is_inside(run) && self.is_written.are_all(offset, bytes) && !self.is_written_since.is_any(offset, bytes)
    }

    /// Whether all asynchronous accesses come before one of a warp.
    #[inline(always)]
    fn waits_for_none(&self, run: &Run, kind: AccessKind, warp: usize) -> bool {
        let Some(order) = &self.asynchronous else { return true };
        let range = run.address as usize..run.address as usize + run.bytes();
        order.conflict(&range, kind, warp).is_none()
    }

    fn note_reads(&mut self, run: &Run, warp: usize) {
        self.is_read_since.set(run.address as usize, run.bytes());
        self.list(run, Kind::Read, warp);
    }

    /// Whether all reads of a warp's instruction are in order for certain; then they are noted.
    #[inline(always)]
    pub fn reads_all(&mut self, runs: &Runs, warp: usize) -> bool {
        let is_in_order = runs
            .each()
            .iter()
            .all(|run| self.is_read_in_order(run) && self.waits_for_none(run, AccessKind::Read, warp));
        if is_in_order {
            for run in runs.each() {
                self.note_reads(run, warp);
            }
        }
        is_in_order
    }

    /// Whether writes are in order for certain; then they are noted.
    fn writes_run(&mut self, run: &Run, warp: usize) -> bool {
        let (offset, bytes) = (run.address as usize, run.bytes());
        // Lanes that write the same bytes are not.
        let is_in_order = !run.is_one_place
            && self.is_inside(run)
            && self.waits_for_none(run, AccessKind::Write, warp)
            && !self.is_written_since.is_any(offset, bytes)
            && !self.is_read_since.is_any(offset, bytes);
        if is_in_order {
            self.mark_written(offset, bytes);
            self.list(run, Kind::Write, warp);
        }
        is_in_order
    }

    /// Whether all writes of a warp's instruction are in order for certain. Those that are, are noted.
    #[inline(always)]
    pub fn writes_all(&mut self, runs: &Runs, warp: usize) -> bool {
        runs.each().iter().all(|run| self.writes_run(run, warp))
    }

    fn mark_written(&mut self, offset: usize, bytes: usize) {
        self.is_written.set(offset, bytes);
        self.is_written_since.set(offset, bytes);
    }

    /// Checks a read.
    ///
    /// # Errors
    /// Bytes that nothing has written, or that another thread writes at the same time.
    pub fn reads(&mut self, offset: usize, bytes: usize, warp: usize, lane: usize) -> Result<(), Fault> {
        self.check_order(&(offset..offset + bytes), AccessKind::Read, "read", warp, lane)?;
        let run = Run::of_lane(offset as u64, bytes, lane);
        if self.is_read_in_order(&run) {
            self.note_reads(&run, warp);
            return Ok(());
        }
        if !self.is_written.are_all(offset, bytes) {
            let text = format!("{bytes} bytes of shared memory at {offset:#x} are read, but were never written");
            return Err(Fault::of_lane(FaultKind::Unwritten, lane, text));
        }
        let now = self.cells.now(warp, lane);
        self.enter_listed();
        self.cells.check_read(offset, bytes, now)?;
        self.cells.note_read(offset, bytes, now);
        self.is_read_since.set(offset, bytes);
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
        self.check_order(&(offset..offset + bytes), AccessKind::Write, "written", warp, lane)?;
        if self.writes_run(&Run::of_lane(offset as u64, bytes, lane), warp) {
            return Ok(());
        }
        let now = self.cells.now(warp, lane);
        self.enter_listed();
        if !is_same {
            self.cells.check_write(offset, bytes, now)?;
        }
        self.cells.note_write(offset, bytes, now);
        self.mark_written(offset, bytes);
        Ok(())
    }

    /// Marks bytes that an atomic reads and writes; atomics do not race with each other.
    pub fn changes(&mut self, offset: usize, bytes: usize, warp: usize, lane: usize) {
        self.enter_listed();
        self.cells.note_write(offset, bytes, self.cells.now(warp, lane));
        self.mark_written(offset, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streams::Random;

    const WARPS: usize = 3;
    const BYTES: usize = 256;

    /// The same judgement without the list and its marks: every access of every lane goes into the cells at once.
    struct Plain {
        cells: SharedCells,
        is_written: Vec<bool>,
    }

    impl Plain {
        fn reads(&mut self, offset: usize, bytes: usize, warp: usize, lane: usize) -> Result<(), Fault> {
            if !self.is_written[offset..offset + bytes].iter().all(|written| *written) {
                let text = format!("{bytes} bytes of shared memory at {offset:#x} are read, but were never written");
                return Err(Fault::of_lane(FaultKind::Unwritten, lane, text));
            }
            let now = self.cells.now(warp, lane);
            self.cells.check_read(offset, bytes, now)?;
            self.cells.note_read(offset, bytes, now);
            Ok(())
        }

        fn writes(&mut self, offset: usize, bytes: usize, warp: usize, lane: usize) -> Result<(), Fault> {
            let now = self.cells.now(warp, lane);
            self.cells.check_write(offset, bytes, now)?;
            self.cells.note_write(offset, bytes, now);
            self.is_written[offset..offset + bytes].fill(true);
            Ok(())
        }
    }

    /// An access by some lanes: each its own bytes, or all the same.
    fn drawn(random: &mut Random) -> (usize, Runs) {
        let each = [2, 4, 4, 8][random.below(4)];
        let first = random.below(BYTES / 2 / each) * each;
        let step = [0, each, each, 2 * each][random.below(4)];
        let lanes = [1, 0b1111, 0b1011, 0xf0][random.below(4)];
        let addresses = std::array::from_fn(|lane| ((first + lane * step) % BYTES) as u64);
        let mut runs = Runs::default();
        assert!(runs.set(&addresses, lanes, each), "multiples");
        (each, runs)
    }

    fn each_lane(
        (each, runs): &(usize, Runs),
        mut judge: impl FnMut(usize, usize, usize) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let places = runs.each().iter().flat_map(|run| run.places());
        places.into_iter().try_for_each(|(lane, address)| judge(address as usize, *each, lane))
    }

    #[test]
    fn listed_accesses_are_judged_as_if_each_went_into_the_cells() {
        let mut faults = 0;
        for seed in 0..3000 {
            let mut random = Random::new(seed);
            let mut shared = Shared::new(BYTES, WARPS);
            let mut plain = Plain { cells: SharedCells::new(BYTES, WARPS), is_written: vec![false; BYTES] };
            if seed % 2 == 0 {
                shared.changes(0, BYTES, 0, 0);
                plain.cells.note_write(0, BYTES, plain.cells.now(0, 0));
                plain.is_written.fill(true);
            }
            let all: Vec<usize> = (0..WARPS).collect();
            let (mut departed, mut judged) = (vec![], (Ok(()), Ok(())));
            while judged == (Ok(()), Ok(())) && random.below(60) > 0 {
                let warp = random.below(WARPS);
                match random.below(8) {
                    0 | 1 => {
                        shared.synchronize(&all, &[]);
                        plain.cells.synchronize(&all, &[]);
                    }
                    2 => {
                        let some = [&all[..2], &all[1..], &all[warp..=warp]][random.below(3)];
                        shared.synchronize(some, &departed);
                        let known: Vec<_> = departed.iter().map(|departed| departed.known).collect();
                        plain.cells.synchronize(some, &known);
                        departed.clear();
                    }
                    3 => {
                        departed.push(shared.depart(warp));
                        assert_eq!(departed.last().map(|departed| departed.known), Some(plain.cells.depart(warp)));
                    }
                    4 | 5 => {
                        let access = drawn(&mut random);
                        judged.0 = match shared.writes_all(&access.1, warp) {
                            true => Ok(()),
                            false => each_lane(&access, |at, each, lane| shared.writes(at, each, warp, lane, false)),
                        };
                        judged.1 = each_lane(&access, |at, each, lane| plain.writes(at, each, warp, lane));
                    }
                    _ => {
                        let access = drawn(&mut random);
                        judged.0 = match shared.reads_all(&access.1, warp) {
                            true => Ok(()),
                            false => each_lane(&access, |at, each, lane| shared.reads(at, each, warp, lane)),
                        };
                        judged.1 = each_lane(&access, |at, each, lane| plain.reads(at, each, warp, lane));
                    }
                }
            }
            assert_eq!(judged.0, judged.1, "seed {seed}");
            faults += usize::from(judged.0.is_err());
        }
        assert!((500..2900).contains(&faults), "{faults} of 3000 sequences end with a fault");
    }
}
