//! The squared global norm, in blocks, as integers: the same bits whatever is sharded.

use config::SHARD_BLOCK;

use crate::fixed_point;
use crate::lanes::{Kernel, LANES, Lanes};

/// Adds the sum of squares of `x / loss_scale` to `sums` (words of [`fixed_point`]).
///
/// Blocks of [`SHARD_BLOCK`] elements are counted from the start of the flat buffer, in which `x` begins at
/// `first_element`. A block's part of `x` is summed in f64: element `i` of the part goes to lane `i % 16` in
/// ascending order, lanes are added by the tree 8, 4, 2, 1. Squares of f32 are exact in f64. Each block's sum is then
/// rounded to fixed point once.
pub struct SquaredSum<'a> {
    /// Any slice of a flat buffer.
    pub x: &'a [f32],
    /// Its place in the flat buffer.
    pub first_element: usize,
    /// The factor in `x`: a power of two, so that dividing by it in f64 changes no bit.
    pub loss_scale: f32,
    /// Words of a sum, accumulated.
    pub sums: &'a mut [i64],
}

impl Kernel for SquaredSum<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let until_border = SHARD_BLOCK - self.first_element % SHARD_BLOCK;
        let (first, rest) = self.x.split_at(until_border.min(self.x.len()));
        for block in std::iter::once(first).chain(rest.chunks(SHARD_BLOCK)) {
            let unscaled = block_sum(block) / (f64::from(self.loss_scale) * f64::from(self.loss_scale));
            fixed_point::add(self.sums, unscaled);
        }
    }
}

#[inline(always)]
fn block_sum(block: &[f32]) -> f64 {
    let (whole, rest) = block.as_chunks::<LANES>();
    let mut lanes = [0.0; LANES];
    for values in whole {
        lanes = add_squares(lanes, *values);
    }
    let mut last = [0.0; LANES];
    last[..rest.len()].copy_from_slice(rest);
    lanes = add_squares(lanes, last);
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// Arrays in, array out: as a loop that adds to places, the compiler makes one element at a time of it.
#[inline(always)]
fn add_squares(lanes: [f64; LANES], values: [f32; LANES]) -> [f64; LANES] {
    let values = values.map(f64::from);
    std::array::from_fn(|lane| lanes[lane] + values[lane] * values[lane])
}
