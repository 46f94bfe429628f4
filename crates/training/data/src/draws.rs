//! Random choices about one sample of the run: a row of numbers of its own.

use philox::{half_open_f64, key_of_seed, philox4x32_10};

/// Counter word that separates these choices from every other use of the same seed.
const PURPOSE: u32 = 0x626c_6e6b;

/// The choices of one sample, in the order in which they are made.
#[derive(Clone, Debug)]
pub struct Draws {
    key: [u32; 2],
    sequence: u64,
    sample: u32,
    drawn: u32,
}

impl Draws {
    /// Those about sample `sample` of sequence `sequence` of a run seeded with `seed`.
    pub fn new(seed: u64, sequence: u64, sample: u32) -> Draws {
        Draws { key: key_of_seed(seed), sequence, sample, drawn: 0 }
    }

    fn next(&mut self) -> u64 {
        let counter =
            [self.drawn, PURPOSE.wrapping_add(self.sample), self.sequence as u32, (self.sequence >> 32) as u32];
        let [low, high, ..] = philox4x32_10(counter, self.key);
        self.drawn += 1;
        u64::from(high) << 32 | u64::from(low)
    }

    /// A number in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        let word = self.next();
        half_open_f64((word >> 32) as u32, word as u32)
    }

    /// A whole number below `end`, each with the same probability, up to `end / 2^64`.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// Puts `values` in an order of which all are equally probable.
    pub fn shuffle<T>(&mut self, values: &mut [T]) {
        for left in (2..=values.len()).rev() {
            values.swap(left - 1, self.below(left as u64) as usize);
        }
    }

    /// `count` different numbers below `end`, ascending; all sets of them are equally probable.
    pub fn ascending(&mut self, count: usize, end: usize) -> Vec<usize> {
        let mut chosen = Vec::with_capacity(count);
        for number in 0..end {
            // Of those that are left, this many are still to be taken.
            if self.below((end - number) as u64) < (count - chosen.len()) as u64 {
                chosen.push(number);
            }
        }
        chosen
    }
}
