//! Memory that starts at a cache line, so that no vector register straddles two.

use std::ops::{Deref, DerefMut};

const LINE: usize = 16;

/// A constant number of `f32`, the first at a cache line; zero until written.
pub(crate) struct Aligned {
    data: Vec<f32>,
    start: usize,
    len: usize,
}

impl Aligned {
    /// Allocates `len` elements.
    pub fn new(len: usize) -> Self {
        let data = vec![0.0f32; len + LINE - 1];
        let start = data.as_ptr().align_offset(LINE * size_of::<f32>()).min(LINE - 1);
        Self { data, start, len }
    }
}

impl Deref for Aligned {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.data[self.start..self.start + self.len]
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.data[self.start..self.start + self.len]
    }
}
