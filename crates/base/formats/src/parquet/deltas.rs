//! Whole numbers as differences in packed blocks (`DELTA_BINARY_PACKED`).

use std::ops::Range;

use super::runs::{bits, varint};
use crate::error::Problem;

/// Numbers in a range of a page, which the caller keeps.
#[derive(Clone, Debug)]
pub struct Deltas {
    left: Range<usize>,
    block_values: u64,
    miniblocks: usize,
    /// Numbers that are still to come.
    count: u64,
    last: i64,
    is_first: bool,
    smallest: i64,
    /// Widths of the miniblocks of the block, and the next of them.
    widths: Range<usize>,
    miniblock: Miniblock,
}

#[derive(Clone, Debug, Default)]
struct Miniblock {
    first_bit: usize,
    width: u32,
    left: u64,
}

impl Deltas {
    /// The numbers from the front of `range`.
    pub fn new(page: &[u8], range: Range<usize>) -> Result<Deltas, Problem> {
        let mut left = range;
        let block_values = varint(page, &mut left)?;
        let miniblocks = varint(page, &mut left)?;
        let count = varint(page, &mut left)?;
        let last = zigzag(varint(page, &mut left)?);
        let is_sound = (1..=1 << 20).contains(&block_values)
            && (1..=1024).contains(&miniblocks)
            && block_values.is_multiple_of(miniblocks)
            && (block_values / miniblocks).is_multiple_of(8);
        if !is_sound {
            let what = format!("blocks of {block_values} differences in {miniblocks} parts are not possible");
            return Err(Problem::damaged(what));
        }
        let (miniblocks, widths) = (miniblocks as usize, left.start..left.start);
        let miniblock = Miniblock::default();
        Ok(Deltas { left, block_values, miniblocks, count, last, is_first: true, smallest: 0, widths, miniblock })
    }

    /// The next number.
    pub fn next(&mut self, page: &[u8]) -> Result<i64, Problem> {
        if self.count == 0 {
            return Err(Problem::damaged("numbers of a page end too early"));
        }
        self.count -= 1;
        if self.is_first {
            self.is_first = false;
            return Ok(self.last);
        }
        while self.miniblock.left == 0 {
            self.begin(page)?;
        }
        let Miniblock { first_bit, width, left } = &mut self.miniblock;
        let delta = bits(page, *first_bit, *width) as i64;
        *first_bit += *width as usize;
        *left -= 1;
        self.last = self.last.wrapping_add(self.smallest).wrapping_add(delta);
        Ok(self.last)
    }

    /// The next miniblock.
    fn begin(&mut self, page: &[u8]) -> Result<(), Problem> {
        if self.widths.is_empty() {
            self.smallest = zigzag(varint(page, &mut self.left)?);
            let end = self.left.start + self.miniblocks;
            if end > self.left.end {
                return Err(Problem::damaged("numbers of a page end too early"));
            }
            self.widths = self.left.start..end;
            self.left.start = end;
        }
        let width = page.get(self.widths.clone()).and_then(<[u8]>::first).copied().unwrap_or_default();
        self.widths.start += 1;
        let values = self.block_values / self.miniblocks as u64;
        let bytes = (values * u64::from(width) / 8) as usize;
        // The last ones of a page may be left out where no value needs them.
        if width > 64 || bytes > self.left.len() {
            return Err(Problem::damaged("numbers of a page end too early"));
        }
        self.miniblock = Miniblock { first_bit: self.left.start * 8, width: width.into(), left: values };
        self.left.start += bytes;
        Ok(())
    }

    /// Where the page continues after all numbers.
    pub fn end(&self, page: &[u8]) -> Result<usize, Problem> {
        let mut rest = self.clone();
        while rest.count > 0 {
            // A whole miniblock at once, where it is inside.
            let whole = rest.miniblock.left.min(rest.count);
            if rest.is_first || whole == 0 {
                rest.next(page)?;
            } else {
                rest.miniblock.left -= whole;
                rest.count -= whole;
            }
        }
        Ok(rest.left.start)
    }
}

fn zigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}
