//! Sums of a group's blocks over tiles of keys.

use super::GROUP;
use crate::attention::QUERIES;
use crate::gemm::pairs::small::{Begin, Packed, SmallProducts};
use crate::view::MatMut;

/// Per block `[head_dim, QUERIES]`: the sums over keys of its outputs, or of its queries' gradients.
pub(super) struct QuerySums<'a> {
    numbers: &'a mut [f32],
    head_dim: usize,
    /// Where each block's next product begins.
    begin: [Begin; GROUP],
}

impl<'a> QuerySums<'a> {
    /// Sums in this memory.
    pub fn new(numbers: &'a mut [f32], head_dim: usize) -> Self {
        Self { numbers, head_dim, begin: [Begin::Zero; GROUP] }
    }

    /// Before any key of another group or head.
    pub fn restart(&mut self) {
        self.begin = [Begin::Zero; GROUP];
    }

    /// A block's room, whatever is in it.
    pub fn buffer(&mut self, place: usize) -> &mut [f32] {
        let len = self.head_dim * QUERIES;
        &mut self.numbers[place * len..][..len]
    }

    /// A block's sums, if there are any yet.
    pub fn stored(&mut self, place: usize) -> Option<&mut [f32]> {
        match self.begin[place] {
            Begin::Zero => None,
            Begin::Stored => Some(self.buffer(place)),
        }
    }

    /// Adds a product for `queries` queries to a block's sums.
    pub fn add(&mut self, products: &SmallProducts, place: usize, (a, b): (Packed<'_>, Packed<'_>), queries: usize) {
        let (begin, head_dim) = (self.begin[place], self.head_dim);
        products.multiply(a, b, begin, MatMut::new(self.buffer(place), head_dim, queries, QUERIES));
        self.begin[place] = Begin::Stored;
    }

    /// A block's sums after the last key: zeros where it saw none.
    pub fn finished(&mut self, place: usize) -> &mut [f32] {
        match self.begin[place] {
            Begin::Zero => self.buffer(place).fill(0.0),
            Begin::Stored => {}
        }
        self.buffer(place)
    }
}
