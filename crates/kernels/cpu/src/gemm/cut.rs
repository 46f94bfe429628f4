//! How the sizes of a product are cut into blocks.

/// A range of one of the three sizes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub start: usize,
    pub len: usize,
}

impl Range {
    /// All of a size.
    pub fn all(len: usize) -> Self {
        Self { start: 0, len }
    }

    /// Consecutive ranges of `block`, of which the last may be shorter; one empty range if there is nothing to cut.
    pub fn blocks(self, block: usize) -> impl Iterator<Item = Self> {
        let Self { start, len } = self;
        (0..len.max(1)).step_by(block).map(move |first| Self { start: start + first, len: block.min(len - first) })
    }
}

/// The block size of as few blocks as `most` allows, of as equal sizes as possible in multiples of `grain`, of which
/// `most` should be one.
pub(super) fn equal_blocks(len: usize, most: usize, grain: usize) -> usize {
    len.div_ceil(len.div_ceil(most).max(1)).next_multiple_of(grain).max(grain)
}
