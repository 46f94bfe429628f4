//! A keyed permutation of `0..len` that needs no memory: the order in which an epoch visits its sequences.

use crate::block::{key_of_seed, philox4x32_10};

/// Rounds of the Feistel network. Four give a permutation that cannot be distinguished from a random one when the
/// round function is random (Luby and Rackoff 1988); six leave a margin for the small domains of tests.
const FEISTEL_ROUNDS: u32 = 6;
/// Counter word that separates permutations from every other use of the same seed.
const PURPOSE: u32 = 0x7065_726d;

/// A permutation of `0..len`, a pure function of `(seed, epoch, len)`: each index is visited exactly once
/// per epoch, and any rank can ask for any place of the order without the rest.
///
/// A balanced Feistel network over the smallest even number of bits that holds `len`, with Philox as its
/// round function; results outside `0..len` walk on along their cycle (Black and Rogaway 2002), which takes
/// fewer than four steps on average.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permutation {
    key: [u32; 2],
    epoch: u64,
    len: u64,
    half_bits: u32,
}

impl Permutation {
    /// The permutation of `0..len` in `epoch` of a run seeded with `seed`.
    pub const fn new(seed: u64, epoch: u64, len: u64) -> Self {
        let bits = u64::BITS - len.saturating_sub(1).leading_zeros();
        // One bit per half at least, so that the network has something to mix.
        let half_bits = if bits < 2 { 1 } else { bits.div_ceil(2) };
        Self { key: key_of_seed(seed), epoch, len, half_bits }
    }

    /// How many indices are permuted.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether nothing is permuted.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The index at place `position` of the order, in `0..len`.
    ///
    /// Panics when `position` is not below `len`.
    pub fn get(&self, position: u64) -> u64 {
        assert!(position < self.len, "position {position} of a permutation of {} indices", self.len);
        let mut index = self.network(position);
        // The network permutes 0..4^half_bits, so the walk returns to 0..len: at the latest at `position` itself.
        while index >= self.len {
            index = self.network(index);
        }
        index
    }

    fn network(&self, value: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let mut left = value >> self.half_bits;
        let mut right = value & mask;
        for round in 0..FEISTEL_ROUNDS {
            // `right` has at most 32 bits, as half of at most 64.
            let counter = [right as u32, PURPOSE + round, self.epoch as u32, (self.epoch >> 32) as u32];
            let mixed = u64::from(philox4x32_10(counter, self.key)[0]) & mask;
            (left, right) = (right, left ^ mixed);
        }
        left << self.half_bits | right
    }
}
