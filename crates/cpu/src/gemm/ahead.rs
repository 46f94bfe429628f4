//! Rows that lie far from the processor, asked for while tiles multiply what is near.

use std::collections::VecDeque;

use device::Element;

use crate::view::MatRef;

/// Bytes that come from memory at once.
const LINE_BYTES: usize = 64;

/// Lines asked for per tile. A tile of attention takes about 900 cycles, in which a core gets as many from its L3 cache with
/// room to spare; many more at once would fill the queue of what is on its way, and the tile's own rows would wait behind them.
const LINES_PER_TILE: usize = 16;

/// Rows of matrices that will soon be read or written, in the order in which they will be.
#[derive(Default)]
pub(crate) struct Ahead {
    pending: VecDeque<Rows>,
}

/// Rows of a matrix, by address: nothing is read through it.
#[derive(Clone, Copy)]
struct Rows {
    start: usize,
    stride: usize,
    rows: usize,
    bytes: usize,
}

impl Ahead {
    /// Forgets what has not been asked for.
    pub fn clear(&mut self) {
        self.pending.clear();
    }

    /// Rows to ask for after those that are pending.
    pub fn add<E: Element>(&mut self, rows: MatRef<'_, E>) {
        self.pending.push_back(Rows {
            start: rows.as_ptr().addr(),
            stride: rows.row_stride() * size_of::<E>(),
            rows: rows.rows(),
            bytes: rows.cols() * size_of::<E>(),
        });
    }

    /// Asks for what comes next, as much as a tile leaves time for.
    #[inline]
    pub fn ask(&mut self) {
        if !self.pending.is_empty() {
            self.ask_for(LINES_PER_TILE);
        }
    }

    /// Asks for all of it.
    pub fn ask_for_all(&mut self) {
        self.ask_for(usize::MAX);
    }

    fn ask_for(&mut self, lines: usize) {
        let mut left = lines;
        while let Some(next) = self.pending.front_mut() {
            while next.rows > 0 {
                if left == 0 {
                    return;
                }
                for byte in (0..next.bytes).step_by(LINE_BYTES) {
                    prefetch(next.start + byte);
                    left = left.saturating_sub(1);
                }
                next.start += next.stride;
                next.rows -= 1;
            }
            self.pending.pop_front();
        }
    }
}

/// Asks for the line of an address, which need not exist.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch(address: usize) {
    use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
    // SAFETY: every x86-64 has the instruction, which accepts any address and reads nothing that a program can see.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(std::ptr::without_provenance(address)) }
}

/// Elsewhere nothing is asked for.
#[cfg(not(target_arch = "x86_64"))]
fn prefetch(_: usize) {}

#[unsafe(no_mangle)]
pub static KNOBS: [std::sync::atomic::AtomicUsize; 4] = [const { std::sync::atomic::AtomicUsize::new(16) }; 4];
