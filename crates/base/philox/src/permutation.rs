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

#[cfg(test)]
mod tests {
    use super::*;

    fn is_bijection(permutation: Permutation) -> bool {
        let mut seen = vec![false; permutation.len() as usize];
        for position in 0..permutation.len() {
            let index = permutation.get(position) as usize;
            if std::mem::replace(&mut seen[index], true) {
                return false;
            }
        }
        true
    }

    #[test]
    fn every_small_length_is_permuted() {
        for len in 0..=300 {
            assert!(is_bijection(Permutation::new(7, 3, len)), "len {len}");
        }
    }

    #[test]
    fn random_seeds_epochs_and_lengths_are_permuted() {
        for case in 0..200u32 {
            let [a, b, c, d] = philox4x32_10([case, 0, 0, 0], [1, 2]);
            let seed = u64::from(a) << 32 | u64::from(b);
            let permutation = Permutation::new(seed, u64::from(c), u64::from(d % 5000));
            assert!(is_bijection(permutation), "{permutation:?}");
        }
    }

    #[test]
    fn long_lengths_stay_in_range() {
        for len in [u64::MAX, 1 << 63, (1 << 40) + 1] {
            let permutation = Permutation::new(1, 0, len);
            for position in [0, 1, len / 2, len - 1] {
                assert!(permutation.get(position) < len);
            }
        }
    }

    #[test]
    fn epochs_and_seeds_differ_and_places_are_spread() {
        let len = 1000;
        let base = Permutation::new(5, 0, len);
        for other in [Permutation::new(5, 1, len), Permutation::new(6, 0, len)] {
            let fixed = (0..len).filter(|&i| base.get(i) == other.get(i)).count();
            // Two random permutations agree in a Poisson(1) number of places: more than 12 has probability 1e-10.
            assert!(fixed <= 12, "{fixed} places agree");
        }
        // The mean of index * position over random permutations is len^3 / 4, its deviation about len^2.5 / 12.
        let covariance: f64 = (0..len).map(|i| (i as f64 - 499.5) * (base.get(i) as f64 - 499.5)).sum();
        assert!(covariance.abs() < 6.0 * 1000f64.powf(2.5) / 12.0);
    }
}
