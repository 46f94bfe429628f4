//! Panels for AMX, with AVX-512: for each block of 32 steps two tiles of 1 KiB, for the first 16 lanes of the panel and
//! the others.
//!
//! A tile of A has a lane per row, with its 16 pairs of steps; a tile of B a pair per row, with its 16 lanes. Either is
//! read as it is or transposed as a square of 16 x 16 pairs, after lanes of two steps have been joined to pairs where
//! lanes are adjacent.

use std::arch::x86_64::*;

use device::Bf16;

use super::PAIRS_BLOCK;
use super::tile::{Adjacent, PairsBlock};
use crate::gemm::vector::Vector;
use crate::gemm::vector_avx512::Avx512Vector;

/// Lanes of a tile, and pairs of a block.
pub(super) const SIDE: usize = 16;
/// Lanes of a panel.
pub(super) const PANEL: usize = 2 * SIDE;
/// How many steps before its use a cache line of lanes that are next to each other is asked for.
const STEPS_AHEAD: usize = 8;
/// Bytes of a tile.
pub(super) const TILE: usize = 1024;

/// Sixteen registers of sixteen pairs.
type Square = [Avx512Vector; SIDE];

/// How a tile is stored: with the registers of a square as its rows, or as its columns.
pub(super) trait Arrangement {
    /// The square whose registers are the tile's rows.
    ///
    /// # Safety
    /// The machine has AVX-512.
    unsafe fn rows_of(square: Square) -> Square;

    /// Stores a square so whose registers are in the tile.
    ///
    /// # Safety
    /// The machine has AVX-512; the tile can be read and written.
    unsafe fn arrange(tile: *mut u8);
}

/// The registers are the rows.
pub(super) struct AsRows;

/// The registers are the columns; pairs are moved as single numbers, whose bits no move changes.
pub(super) struct AsColumns;

impl Arrangement for AsRows {
    #[inline(always)]
    unsafe fn rows_of(square: Square) -> Square {
        square
    }

    #[inline(always)]
    unsafe fn arrange(_tile: *mut u8) {}
}

impl Arrangement for AsColumns {
    #[inline(always)]
    unsafe fn rows_of(mut square: Square) -> Square {
        // SAFETY: the caller's promise.
        unsafe { Avx512Vector::transpose(&mut square) };
        square
    }

    #[inline(always)]
    unsafe fn arrange(tile: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe {
            let mut square = [Avx512Vector::zero(); SIDE];
            for (row, register) in square.iter_mut().enumerate() {
                *register = Avx512Vector::load(tile.add(row * 64).cast());
            }
            store(&Self::rows_of(square), tile);
        }
    }
}

/// Packs rows of A.
///
/// # Safety
/// The machine has AVX-512 F and BW; the source may be read and the panels written for the block's shape.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
pub(super) unsafe fn pack_a(block: &PairsBlock<Bf16>) {
    // SAFETY: the caller's promise.
    unsafe {
        match block.adjacent {
            Adjacent::Steps => pack_steps::<AsRows>(block),
            Adjacent::Lanes => pack_lanes::<AsColumns>(block),
        }
    }
}

/// Packs columns of B.
///
/// # Safety
/// As for [`pack_a`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
pub(super) unsafe fn pack_b(block: &PairsBlock<Bf16>) {
    // SAFETY: the caller's promise.
    unsafe {
        match block.adjacent {
            Adjacent::Steps => pack_steps::<AsColumns>(block),
            Adjacent::Lanes => pack_lanes::<AsRows>(block),
        }
    }
}

/// A mask of the first `count` of 32 numbers.
#[inline(always)]
fn first(count: usize) -> __mmask32 {
    ((1u64 << count.min(PAIRS_BLOCK)) - 1) as __mmask32
}

/// The first `count` of 32 consecutive numbers, zeros after them.
///
/// # Safety
/// The machine has AVX-512 BW; these numbers can be read.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn load_first(source: *const Bf16, count: usize) -> __m512i {
    // SAFETY: the caller's promise; masked numbers are not read.
    unsafe {
        if count >= PAIRS_BLOCK {
            _mm512_loadu_si512(source.cast())
        } else {
            _mm512_maskz_loadu_epi16(first(count), source.cast())
        }
    }
}

/// Writes a tile.
///
/// # Safety
/// The machine has AVX-512; 1 KiB can be written.
#[inline(always)]
pub(super) unsafe fn store(square: &Square, tile: *mut u8) {
    for (row, register) in square.iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe { register.store(tile.add(row * 64).cast()) };
    }
}

/// Packs a block whose steps are adjacent: a register has a lane's pairs.
///
/// # Safety
/// As for [`pack_a`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn pack_steps<A: Arrangement>(block: &PairsBlock<Bf16>) {
    let blocks = block.steps.div_ceil(PAIRS_BLOCK);
    for half in 0..block.lanes.next_multiple_of(PANEL) / SIDE {
        let lanes = block.lanes.saturating_sub(half * SIDE).min(SIDE);
        for index in 0..blocks {
            let steps = (block.steps - index * PAIRS_BLOCK).min(PAIRS_BLOCK);
            // SAFETY: of these lanes and steps the source has as many as are loaded; the panels have the two tiles of
            // each block.
            unsafe {
                let mut square = [Avx512Vector::zero(); SIDE];
                for (lane, register) in square.iter_mut().enumerate().take(lanes) {
                    let lane = block.source.add((half * SIDE + lane) * block.source_stride + index * PAIRS_BLOCK);
                    // The same steps of the lanes after these: each row is a stream that the machine does not foresee.
                    Avx512Vector::prefetch(lane.wrapping_add(SIDE * block.source_stride).cast());
                    *register = Avx512Vector::of_bits(load_first(lane, steps));
                }
                store(&A::rows_of(square), block.target.add(place(half, index, blocks)));
            }
        }
    }
}

/// Packs a block whose lanes are adjacent: registers of two steps are joined, so that one has a pair of sixteen lanes.
/// Two rows are read from end to end, for the machine foresees a few long streams and not many short ones. No closures
/// here: one inside a function of the standard library would not be compiled into it.
///
/// # Safety
/// As for [`pack_a`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn pack_lanes<A: Arrangement>(block: &PairsBlock<Bf16>) {
    let (blocks, panels) = (block.steps.div_ceil(PAIRS_BLOCK), block.lanes.div_ceil(PANEL));
    for index in 0..blocks {
        for pair in 0..SIDE {
            let step = index * PAIRS_BLOCK + 2 * pair;
            for panel in 0..panels {
                let lane = panel * PANEL;
                let lanes = (block.lanes - lane).min(PANEL);
                let (even_lanes, odd_lanes) = (lanes_of(block, step, lanes), lanes_of(block, step + 1, lanes));
                // SAFETY: of these lanes and steps the source has as many as are loaded; the panels have the two tiles
                // of each block.
                unsafe {
                    let [even, odd] = rows_of_pair(block, step, lane);
                    let [front, back] = join(load_first(even, even_lanes), load_first(odd, odd_lanes));
                    let row = block.target.add(place(2 * panel, index, blocks) + pair * 64);
                    Avx512Vector::of_bits(front).store(row.cast());
                    Avx512Vector::of_bits(back).store(row.add(TILE).cast());
                }
            }
        }
        for half in 0..2 * panels {
            // SAFETY: the caller's promise; the tile has been written.
            unsafe { A::arrange(block.target.add(place(half, index, blocks))) };
        }
    }
}

/// Both rows of a pair of steps, from a lane on; asks for the same lanes of some steps on.
///
/// # Safety
/// The machine has AVX-512.
#[inline(always)]
pub(super) unsafe fn rows_of_pair<E>(block: &PairsBlock<E>, step: usize, lane: usize) -> [*const E; 2] {
    let even = block.source.wrapping_add(step * block.source_stride + lane);
    let odd = even.wrapping_add(block.source_stride);
    for row in [even, odd] {
        // SAFETY: any address may be asked for, and the caller's machine has the instruction.
        unsafe { Avx512Vector::prefetch(row.wrapping_add(STEPS_AHEAD * block.source_stride).cast()) };
    }
    [even, odd]
}

/// How many of some lanes a step has: all of those that exist.
#[inline(always)]
pub(super) fn lanes_of<E>(block: &PairsBlock<E>, step: usize, lanes: usize) -> usize {
    if step < block.steps { lanes } else { 0 }
}

/// Where the tile of a half panel and a block of steps is, in bytes.
#[inline(always)]
fn place(half: usize, index: usize, blocks: usize) -> usize {
    ((half / 2 * blocks + index) * 2 + half % 2) * TILE
}

/// Pairs of the same lanes of two steps: the first sixteen lanes, and the others.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn join(even: __m512i, odd: __m512i) -> [__m512i; 2] {
    // Each quarter of a register has eight lanes, of which these are the first four and the others.
    let (low, high) = (_mm512_unpacklo_epi16(even, odd), _mm512_unpackhi_epi16(even, odd));
    let front = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    let back = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    [_mm512_permutex2var_epi64(low, front, high), _mm512_permutex2var_epi64(low, back, high)]
}
