//! The registers of a warp: rows of 32 lanes.

use crate::code::{Constant, Kernel, PredicateSource, Row, Slot};

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
#[derive(Clone, Debug)]
pub struct Registers {
    /// Predicates, a bit for each lane.
    pub predicates: Vec<Lanes>,
    /// Registers of at most 32 bits.
    pub small: Vec<Small>,
    /// Registers of 64 bits.
    pub wide: Vec<Wide>,
}

impl Registers {
    /// Zeros, and the constants of `kernel`, whose special registers `special` tells.
    pub fn new(kernel: &Kernel, special: impl Fn(crate::ptx::Special) -> Small) -> Registers {
        let mut small = vec![[0; LANES]; kernel.small];
        small.extend(kernel.small_constants.iter().map(|constant| match constant {
            Constant::Value(value) => [*value; LANES],
            Constant::Special(register) => special(*register),
        }));
        small.resize(small.len() + SCRATCH, [0; LANES]);
        let mut wide = vec![[0; LANES]; kernel.wide];
        wide.extend(kernel.wide_constants.iter().map(|value| [*value; LANES]));
        Registers { predicates: vec![0; kernel.predicates], small, wide }
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
        let [a, b, c, d] = from.map(|row| self.small[usize::from(row)]);
        let to = &mut self.small[usize::from(to)];
        for lane in 0..LANES {
            let value = f(a[lane], b[lane], c[lane], d[lane]);
            to[lane] = if is_set(lanes, lane) { value } else { to[lane] };
        }
    }

    /// Computes a row of 64 bits from four, lane by lane.
    #[inline(always)]
    pub fn wide_of(&mut self, lanes: Lanes, to: Row, from: [Row; 4], f: impl Fn(u64, u64, u64, u64) -> u64) {
        let [a, b, c, d] = from.map(|row| self.wide[usize::from(row)]);
        let to = &mut self.wide[usize::from(to)];
        for lane in 0..LANES {
            let value = f(a[lane], b[lane], c[lane], d[lane]);
            to[lane] = if is_set(lanes, lane) { value } else { to[lane] };
        }
    }
}

/// Whether a lane's bit is set.
#[inline(always)]
pub fn is_set(lanes: Lanes, lane: usize) -> bool {
    lanes >> lane & 1 != 0
}

/// The lanes whose bit is set, in ascending order.
pub fn lanes_in(lanes: Lanes) -> impl Iterator<Item = usize> {
    (0..LANES).filter(move |lane| is_set(lanes, *lane))
}
