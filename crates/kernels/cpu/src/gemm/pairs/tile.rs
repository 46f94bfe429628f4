//! A tile of sums, and a block of an operand to pack.

use device::Element;

use super::PAIRS_BLOCK;
use crate::view::MatMut;

/// Which of an operand's two sizes is adjacent in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Adjacent {
    /// Steps of K: A in NT and NN, B in NT.
    Steps,
    /// Rows of A or columns of B: A in TN, B in NN and TN.
    Lanes,
}

/// A block of A or B to pack.
#[derive(Clone, Copy)]
pub(super) struct PairsBlock<E> {
    /// Element (0, 0).
    pub source: *const E,
    /// In elements: from one lane to the next where steps are adjacent, from one step to the next where lanes are.
    pub source_stride: usize,
    pub adjacent: Adjacent,
    /// Rows of A or columns of B.
    pub lanes: usize,
    /// Length along K; panels are filled up with zeros to a multiple of [`PAIRS_BLOCK`].
    pub steps: usize,
    /// Where the first panel starts, aligned to a cache line.
    pub target: *mut u8,
}

/// The steps of a panel that holds `steps`.
pub(super) fn padded(steps: usize) -> usize {
    steps.next_multiple_of(PAIRS_BLOCK)
}

/// Where the sums of a tile begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    /// At +0.
    Zero,
    /// Where the steps before these have brought them.
    Stored,
}

/// One tile of sums, `[panel_rows, panel_columns]`; all of it is computed, also after the edges of C.
#[derive(Clone, Copy)]
pub(super) struct PairsTile {
    pub a: *const u8,
    pub b: *const u8,
    /// Where what later tiles read begins, of which this one asks for some bytes; any address will do.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(dead_code, reason = "other machines ask for nothing ahead of its use")
    )]
    pub ahead: *const u8,
    /// Blocks of [`PAIRS_BLOCK`] steps.
    pub blocks: usize,
    pub begin: Begin,
    pub sums: *mut f32,
    /// In elements, from one row of sums to the next.
    pub sums_stride: usize,
    /// Where the sums will be written soon.
    pub rows_of_c: RowsOfC,
}

/// Rows of C, by address: a tile asks for their cache lines while it multiplies, for they begin where the machine does
/// not foresee it.
#[derive(Clone, Copy)]
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "other machines ask for nothing ahead of its use"))]
pub(super) struct RowsOfC {
    /// Of the first row.
    pub start: usize,
    /// One past the last row that is to be asked for.
    pub end: usize,
    /// Bytes from one row to the next.
    pub stride: usize,
    /// Byte of a row that is in its last line.
    pub last_byte: usize,
}

impl RowsOfC {
    /// Nothing that is far.
    pub const NEAR: RowsOfC = RowsOfC { start: 0, end: 0, stride: 0, last_byte: 0 };

    /// The rows of a block of C.
    pub fn of<E: Element>(c: &mut MatMut<'_, E>) -> Self {
        let (start, stride) = (c.as_mut_ptr().addr(), c.row_stride() * size_of::<E>());
        Self { start, end: start + c.rows() * stride, stride, last_byte: c.cols() * size_of::<E>() - 1 }
    }

    /// Asks for all rows at once.
    pub fn ask_for(&self) {
        #[cfg(target_arch = "x86_64")]
        for row in (self.start..self.end).step_by(self.stride.max(1)) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            for byte in (0..self.last_byte).step_by(64).chain([self.last_byte]) {
                // SAFETY: any address may be asked for.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(row + byte)) };
            }
        }
    }
}
