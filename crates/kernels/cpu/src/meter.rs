//! Work that kernels report: counted where it is done, in their own loops.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the work that kernels did. One meter belongs to one thread; others may look at it.
///
/// The counts come from the loops of the kernels, not from the shapes that a caller asked for, so that a test which
/// compares them with a prediction proves something.
#[derive(Debug, Default)]
pub struct Meter {
    multiply_adds: AtomicU64,
}

impl Meter {
    /// A meter that is at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Multiply-adds so far on real elements; those on the padding of edge tiles are not counted.
    pub fn multiply_adds(&self) -> u64 {
        self.multiply_adds.load(Ordering::Relaxed)
    }

    /// Adds to the count of multiply-adds.
    #[inline]
    pub fn add_multiply_adds(&self, count: u64) {
        // One thread writes, so this need not be an atomic addition, which would slow tiles down.
        self.multiply_adds.store(self.multiply_adds() + count, Ordering::Relaxed);
    }
}
