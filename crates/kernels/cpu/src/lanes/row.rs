//! Rows of any length in blocks of sixteen, and the fixed order in which a row is summed.

use super::{LANES, Lanes, Stored};

/// Elements that are summed in f32 before the sum continues in f64.
const CHUNK: usize = 1024;

/// Where sixteen elements of a row are, or fewer at its end.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    start: usize,
    len: usize,
}

impl Block {
    /// This block of `row`; lanes after the row's end are zero.
    #[inline(always)]
    pub fn load<L: Lanes>(self, row: &[impl Stored]) -> L {
        self.load_or(row, 0.0)
    }

    /// This block of `row`; lanes after the row's end are `fill`.
    #[inline(always)]
    pub fn load_or<L: Lanes>(self, row: &[impl Stored], fill: f32) -> L {
        let values = &row[self.start..self.start + self.len];
        match values.first_chunk::<LANES>() {
            Some(values) => Stored::load(values),
            None => Stored::load_partial(values, fill),
        }
    }

    /// Writes this block of `row`; lanes after the row's end go nowhere.
    #[inline(always)]
    pub fn store<L: Lanes>(self, row: &mut [impl Stored], lanes: L) {
        let values = &mut row[self.start..self.start + self.len];
        match values.first_chunk_mut::<LANES>() {
            Some(values) => Stored::store(lanes, values),
            None => Stored::store_partial(lanes, values),
        }
    }

    /// `lanes` with zeros after the row's end.
    #[inline(always)]
    pub fn keep<L: Lanes>(self, lanes: L) -> L {
        if self.len == LANES {
            return lanes;
        }
        let mut values = [0.0; LANES];
        lanes.store_partial(&mut values[..self.len]);
        L::load(&values)
    }
}

/// Calls `body` for every block of a row of `len` elements, in ascending order.
///
/// Write the closure as `#[inline(always)] |block| ...`: then it is compiled with the caller's instructions, once for
/// full blocks without any test of the length, and once for the last one.
#[inline(always)]
pub fn for_each_block(len: usize, mut body: impl FnMut(Block)) {
    let full = len / LANES * LANES;
    let mut start = 0;
    while start < full {
        body(Block { start, len: LANES });
        start += LANES;
    }
    if full < len {
        body(Block { start: full, len: len - full });
    }
}

/// Work on several neighbouring blocks of a row at once, each with an accumulator of its own.
pub trait OnTile {
    /// Does it. Implement with `#[inline(always)]`.
    fn visit<const N: usize>(&mut self, blocks: [Block; N]);
}

/// Visits every block of a row of `len` elements once: four at a time, then those that are left one by one. Sums over
/// many rows are visited in tiles of columns, so that a row's visit reads whole cache lines that follow each other.
#[inline(always)]
pub fn for_each_tile(len: usize, body: &mut impl OnTile) {
    const TILE: usize = 4;
    let mut start = 0;
    while start + TILE * LANES <= len {
        body.visit::<TILE>(std::array::from_fn(|block| Block { start: start + block * LANES, len: LANES }));
        start += TILE * LANES;
    }
    while start + LANES <= len {
        body.visit([Block { start, len: LANES }]);
        start += LANES;
    }
    if start < len {
        body.visit([Block { start, len: len - start }]);
    }
}

/// The sum over a row of `len` elements of `term(block)`, whose lanes after the row's end do not count.
///
/// The order is fixed and depends on the row alone: the row is cut into chunks of 1024 elements. In a chunk, element
/// `i` goes to lane `i % 16` in ascending order, then the lanes are added by the tree 8, 4, 2, 1, all in f32. The
/// chunks' sums are added in ascending order in f64. A chunk's relative error is at most 67 roundings when all terms
/// have one sign.
#[inline(always)]
pub fn row_sum<L: Lanes>(len: usize, mut term: impl FnMut(Block) -> L) -> f64 {
    let mut total = 0.0;
    let mut sum = L::zero();
    for_each_block(
        len,
        #[inline(always)]
        |block| {
            sum = sum + block.keep(term(block));
            if (block.start + LANES).is_multiple_of(CHUNK) {
                total += f64::from(sum.reduce_sum());
                sum = L::zero();
            }
        },
    );
    // After a last full chunk the lanes are zero.
    total + f64::from(sum.reduce_sum())
}
