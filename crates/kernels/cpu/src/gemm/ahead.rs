//! Rows that are far from the processor, asked for while tiles multiply what is near.

use std::collections::VecDeque;

use device::Element;

use crate::view::MatRef;

/// Bytes that come from memory at once.
const LINE_BYTES: usize = 64;

/// Rows of matrices that will soon be read or written, in the order in which they will be.
#[derive(Default)]
pub(crate) struct Ahead {
    pending: VecDeque<Rows>,
}

/// Rows by address: nothing is read through it.
#[derive(Clone, Copy, Debug)]
struct Rows {
    /// Of the first row.
    start: usize,
    /// Bytes from one row to the next.
    stride: usize,
    rows: usize,
    /// Of a row.
    bytes: usize,
}

impl Ahead {
    /// Forgets what has not been asked for.
    pub fn clear(&mut self) {
        self.pending.clear();
    }

    /// Rows to ask for after those that are pending.
    pub fn add<E: Element>(&mut self, matrix: MatRef<'_, E>) {
        self.pending.push_back(Rows {
            start: matrix.as_ptr().addr(),
            stride: matrix.row_stride() * size_of::<E>(),
            rows: matrix.rows(),
            bytes: matrix.cols() * size_of::<E>(),
        });
    }

    /// The number of runs of rows for which there is space.
    #[cfg(test)]
    pub fn capacity(&self) -> usize {
        self.pending.capacity()
    }

    /// Asks for the next `lines` lines, up to the end of a row.
    #[inline]
    pub fn ask(&mut self, lines: usize) {
        if !self.pending.is_empty() {
            self.take(lines, prefetch);
        }
    }

    /// Prefetches every remaining line.
    pub fn ask_for_all(&mut self) {
        self.take(usize::MAX, prefetch);
    }

    fn take(&mut self, lines: usize, mut ask: impl FnMut(usize)) {
        let mut taken = 0;
        while let Some(next) = self.pending.front_mut() {
            while next.rows > 0 {
                if taken >= lines {
                    return;
                }
                for byte in (0..next.bytes).step_by(LINE_BYTES) {
                    ask(next.start + byte);
                }
                taken += next.bytes.div_ceil(LINE_BYTES);
                next.start = next.start.wrapping_add(next.stride);
                next.rows -= 1;
            }
            self.pending.pop_front();
        }
    }
}

/// Asks for the line of an address, which need not exist, as far as the L2 cache: what is in L1 is in use.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch(address: usize) {
    use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
    // SAFETY: every x86-64 has the instruction, which accepts any address and changes nothing that a program can see.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(std::ptr::without_provenance(address)) }
}

/// Elsewhere nothing is asked for.
#[cfg(not(target_arch = "x86_64"))]
fn prefetch(_: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_asked_for_once_and_in_order() {
        let mut ahead = Ahead::default();
        ahead.pending.push_back(Rows { start: 0, stride: 1000, rows: 3, bytes: 130 });
        ahead.pending.push_back(Rows { start: 8000, stride: 4, rows: 2, bytes: 4 });
        let mut asked = Vec::new();
        let mut counts = Vec::new();
        for lines in [1, 4, 1, 5] {
            ahead.take(lines, |address| asked.push(address));
            counts.push(asked.len());
        }
        assert_eq!(asked, [0, 64, 128, 1000, 1064, 1128, 2000, 2064, 2128, 8000, 8004]);
        assert_eq!(counts, [3, 9, 10, 11], "whole rows, as many as have the lines asked for");
        assert!(ahead.pending.is_empty());
    }
}
