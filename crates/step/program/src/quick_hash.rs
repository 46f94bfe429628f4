//! Maps from values and the like, which a walk along a program reads several times for each instruction. Programs are
//! not strangers' input, so the hash need not resist keys that were chosen to collide.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use crate::Value;

/// A map from what instructions name.
pub(crate) type QuickMap<K, T> = HashMap<K, T, BuildHasherDefault<QuickHasher>>;
/// A map from values.
pub(crate) type ValueMap<T> = QuickMap<Value, T>;
/// A set of values.
pub(crate) type ValueSet = HashSet<Value, BuildHasherDefault<QuickHasher>>;

/// Multiplies and rotates word by word, as the compiler's own maps do (rustc-hash, FxHasher).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QuickHasher {
    state: u64,
}

/// 2^64 divided by the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

impl QuickHasher {
    fn add(&mut self, word: u64) {
        self.state = (self.state.rotate_left(5) ^ word).wrapping_mul(FACTOR);
    }
}

impl Hasher for QuickHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.add(u64::from(*byte)));
    }

    fn write_u32(&mut self, word: u32) {
        self.add(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        self.add(word);
    }

    fn write_usize(&mut self, word: usize) {
        self.add(word as u64);
    }

    fn write_isize(&mut self, word: isize) {
        self.add(word as u64);
    }

    /// The map takes its places from the low bits, which a product mixes least.
    fn finish(&self) -> u64 {
        self.state.rotate_left(26)
    }
}
