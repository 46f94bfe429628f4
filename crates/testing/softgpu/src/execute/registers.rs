//! The registers of a warp: rows of 32 lanes.

use crate::code::{Constant, Kernel, PredicateSource, Row, Slot};
use crate::ptx::Special;

/// Lanes of a warp.
pub const LANES: usize = 32;
/// One bit for each lane.
pub type Lanes = u32;
/// A register of 32 bits in all lanes.
pub type Small = [u32; LANES];
/// A register of 64 bits in all lanes.
pub type Wide = [u64; LANES];

/// Rows after the others that instructions use for values in between.
pub const SCRATCH: usize = 5;

/// All registers of a warp.
#[derive(Clone, Debug, Default)]
pub struct Registers {
    /// Predicates, a bit for each lane.
    pub predicates: Vec<Lanes>,
    /// Registers of at most 32 bits.
    pub small: Vec<Small>,
    /// Registers of 64 bits.
    pub wide: Vec<Wide>,
}

impl Registers {
    /// The same room, with zeros and the constants of `kernel`, whose special registers `special` tells.
    #[must_use]
    pub fn of_kernel(mut self, kernel: &Kernel, special: impl Fn(Special) -> Small) -> Registers {
        self.predicates.clear();
        self.predicates.resize(kernel.predicates, 0);
        self.small.clear();
        self.small.resize(kernel.small + kernel.small_constants.len() + SCRATCH, [0; LANES]);
        for (row, constant) in self.small[kernel.small..].iter_mut().zip(&kernel.small_constants) {
            *row = match constant {
                Constant::Value(value) => [*value; LANES],
                Constant::Special(register) => special(*register),
            };
        }
        self.wide.clear();
        self.wide.resize(kernel.wide + kernel.wide_constants.len(), [0; LANES]);
        for (row, value) in self.wide[kernel.wide..].iter_mut().zip(&kernel.wide_constants) {
            *row = [*value; LANES];
        }
        self
    }

    /// Returns the registers of a warp of `kernel` to their beginning, in another warp, which `special` tells.
    pub fn restart(&mut self, kernel: &Kernel, special: impl Fn(Special) -> Small) {
        self.predicates.fill(0);
        self.small[..kernel.small].fill([0; LANES]);
        for (row, constant) in self.small[kernel.small..].iter_mut().zip(&kernel.small_constants) {
            if let Constant::Special(register) = constant {
                *row = special(*register);
            }
        }
        self.wide[..kernel.wide].fill([0; LANES]);
    }

    /// The lanes whose predicate is set.
    #[inline(always)]
    pub fn lanes_of(&self, predicate: PredicateSource) -> Lanes {
        let lanes = self.predicates[usize::from(predicate.row)];
        if predicate.is_negated { !lanes } else { lanes }
    }

    /// The values of a register of either width, 0 of none.
    pub fn values(&self, slot: Slot) -> Wide {
        match slot {
            Slot::Small(row) => self.small[usize::from(row)].map(u64::from),
            Slot::Wide(row) => self.wide[usize::from(row)],
            Slot::Sink => [0; LANES],
        }
    }

    /// Writes the low bits of `values` in `lanes`.
    pub fn write(&mut self, slot: Slot, lanes: Lanes, values: &Wide) {
        match slot {
            Slot::Small(row) => {
                let row = &mut self.small[usize::from(row)];
                for lane in 0..LANES {
                    row[lane] = if is_set(lanes, lane) { values[lane] as u32 } else { row[lane] };
                }
            }
            Slot::Wide(row) => {
                let row = &mut self.wide[usize::from(row)];
                for lane in 0..LANES {
                    row[lane] = if is_set(lanes, lane) { values[lane] } else { row[lane] };
                }
            }
            Slot::Sink => {}
        }
    }

    /// Writes a predicate in `lanes`.
    #[inline(always)]
    pub fn write_predicate(&mut self, row: Row, lanes: Lanes, values: Lanes) {
        let row = &mut self.predicates[usize::from(row)];
        *row = *row & !lanes | values & lanes;
    }

    /// Computes a row of 32 bits from four, lane by lane.
    #[inline(always)]
    pub fn small_of(&mut self, lanes: Lanes, to: Row, from: [Row; 4], f: impl Fn(u32, u32, u32, u32) -> u32) {
        row_of(&mut self.small, lanes, to, from, f);
    }

    /// Computes a row of 64 bits from four, lane by lane.
    #[inline(always)]
    pub fn wide_of(&mut self, lanes: Lanes, to: Row, from: [Row; 4], f: impl Fn(u64, u64, u64, u64) -> u64) {
        row_of(&mut self.wide, lanes, to, from, f);
    }
}

/// A register's value in a lane.
trait Word: Copy + Default {
    /// This where the lane's bit is set, and otherwise `other`: without a branch, so that lanes are computed together.
    fn where_set(self, lanes: Lanes, lane: usize, other: Self) -> Self;
}

impl Word for u32 {
    #[inline(always)]
    fn where_set(self, lanes: Lanes, lane: usize, other: u32) -> u32 {
        let mask = 0u32.wrapping_sub(lanes >> lane & 1);
        self & mask | other & !mask
    }
}

impl Word for u64 {
    #[inline(always)]
    fn where_set(self, lanes: Lanes, lane: usize, other: u64) -> u64 {
        let mask = 0u64.wrapping_sub(u64::from(lanes) >> lane & 1);
        self & mask | other & !mask
    }
}

/// Lanes that are computed at once.
const PART: usize = 8;

/// Computes a row from four. Parts of rows are read before they are written, so the result may replace an operand.
#[inline(always)]
fn row_of<W: Word>(rows: &mut [[W; LANES]], lanes: Lanes, to: Row, from: [Row; 4], f: impl Fn(W, W, W, W) -> W) {
    // Loops instead of maps over arrays, which the compiler does not turn into vectors.
    for part in 0..LANES / PART {
        let range = part * PART..(part + 1) * PART;
        let mut operands = [[W::default(); PART]; 4];
        for (operand, row) in operands.iter_mut().zip(&from) {
            operand.copy_from_slice(&rows[usize::from(*row)][range.clone()]);
        }
        let [a, b, c, d] = operands;
        let mut values = [W::default(); PART];
        for lane in 0..PART {
            values[lane] = f(a[lane], b[lane], c[lane], d[lane]);
        }
        let to = &mut rows[usize::from(to)][range];
        for lane in 0..PART {
            to[lane] = values[lane].where_set(lanes, part * PART + lane, to[lane]);
        }
    }
}

/// Whether a lane's bit is set.
#[inline(always)]
pub fn is_set(lanes: Lanes, lane: usize) -> bool {
    lanes >> lane & 1 != 0
}

/// The lanes whose bit is set, in ascending order.
#[inline(always)]
pub fn lanes_in(lanes: Lanes) -> impl Iterator<Item = usize> {
    let mut left = lanes;
    std::iter::from_fn(move || {
        let lane = left.trailing_zeros() as usize;
        left &= left.wrapping_sub(1);
        (lane < LANES).then_some(lane)
    })
}
