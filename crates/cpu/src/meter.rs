//! What kernels report about themselves: work counted where it is done, in their own loops.

use std::cell::Cell;

/// Counts the work that kernels did. One meter belongs to one rank's thread.
///
/// The counts come from the loops of the kernels, not from the shapes that a caller asked for, so that a test which
/// compares them with a prediction proves something.
#[derive(Debug, Default)]
pub struct Meter {
    multiply_adds: Cell<u64>,
}

impl Meter {
    /// A meter that stands at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Multiply-adds so far on real elements; those on the padding of edge tiles are not counted.
    pub fn multiply_adds(&self) -> u64 {
        self.multiply_adds.get()
    }

    /// Adds to the count of multiply-adds.
    #[inline]
    pub fn add_multiply_adds(&self, count: u64) {
        self.multiply_adds.set(self.multiply_adds.get() + count);
    }
}
