//! Panels for AMX, with AVX-512: for each block of 32 steps two tiles of 1 KiB, for the first 16 lanes of the panel and the others.
//!
//! A tile of A has a lane per row, with its 16 pairs of steps; a tile of B a pair per row, with its 16 lanes. Either is read as it is or transposed
//! as a square of 16 x 16 pairs, after lanes of two steps have been joined to pairs where lanes are adjacent.

use std::arch::x86_64::*;

use device::Bf16;

use super::PAIRS_BLOCK;
use super::engine::{Adjacent, PairsBlock};
use crate::gemm::vector::Vector;
use crate::gemm::vector_avx512::Avx512Vector;

/// Lanes of a tile, and pairs of a block.
pub(super) const SIDE: usize = 16;
/// Lanes of a panel.
pub(super) const PANEL: usize = 2 * SIDE;
/// How many panels before its use a row's cache line is asked for.
pub(super) const AHEAD: usize = 4;
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

    /// Stores a square so whose registers lie in the tile.
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
            let square = std::array::from_fn(|row| Avx512Vector::load(tile.add(row * 64).cast()));
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
            Adjacent::Lanes => pack_lanes_as_rows(block),
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
            Adjacent::Lanes => pack_lanes_as_columns(block),
        }
    }
}

/// A mask of the first `count` of 32 numbers.
#[inline(always)]
fn first(count: usize) -> __mmask32 {
    ((1u64 << count.min(PAIRS_BLOCK)) - 1) as __mmask32
}

/// The first `count` of 32 consecutive numbers, zeros behind them.
///
/// # Safety
/// The machine has AVX-512 BW; these numbers can be read.
#[inline(always)]
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

/// The first `count` of 16 consecutive numbers in the low halves of 32 bits each, zeros behind them.
///
/// # Safety
/// The machine has AVX-512 BW and VL; these numbers can be read.
#[inline(always)]
unsafe fn load_first_half(source: *const Bf16, count: usize) -> __m512i {
    // SAFETY: the caller's promise; masked numbers are not read.
    unsafe { _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first(count) as __mmask16, source.cast())) }
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
#[inline(always)]
unsafe fn pack_steps<A: Arrangement>(block: &PairsBlock<Bf16>) {
    let blocks = block.steps.div_ceil(PAIRS_BLOCK);
    for half in 0..block.lanes.next_multiple_of(PANEL) / SIDE {
        let lanes = block.lanes.saturating_sub(half * SIDE).min(SIDE);
        for index in 0..blocks {
            let steps = (block.steps - index * PAIRS_BLOCK).min(PAIRS_BLOCK);
            // SAFETY: of these lanes and steps the source has as many as are loaded; the panels have the two tiles of each block.
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

/// The addresses of both steps of a pair, from some lane on, and how many lanes each has: of steps that do not exist nothing is read.
///
/// # Safety
/// The machine has AVX-512.
#[inline(always)]
unsafe fn pair_of(block: &PairsBlock<Bf16>, step: usize, lane: usize, lanes: usize) -> [(*const Bf16, usize); 2] {
    [step, step + 1].map(|step| {
        let address = block.source.wrapping_add(step * block.source_stride + lane);
        // Of this step the lanes of some panels on: more rows are read in turns than the machine foresees.
        // SAFETY: any address may be asked for, and the caller's machine has the instruction.
        unsafe { Avx512Vector::prefetch(address.wrapping_add(AHEAD * PANEL).cast()) };
        (address, if step < block.steps { lanes } else { 0 })
    })
}

/// Packs a block of B whose lanes are adjacent: registers of two steps are joined, so that one has a pair of sixteen lanes.
///
/// # Safety
/// As for [`pack_a`].
#[inline(always)]
unsafe fn pack_lanes_as_columns(block: &PairsBlock<Bf16>) {
    let blocks = block.steps.div_ceil(PAIRS_BLOCK);
    for index in 0..blocks {
        for panel in 0..block.lanes.div_ceil(PANEL) {
            let lanes = (block.lanes - panel * PANEL).min(PANEL);
            let [front, back] = [0, 1].map(|half| block.target.wrapping_add(place(2 * panel + half, index, blocks)));
            for pair in 0..SIDE {
                // SAFETY: of these lanes and steps the source has as many as are loaded; the panels have the two tiles of each block.
                unsafe {
                    let steps = pair_of(block, index * PAIRS_BLOCK + 2 * pair, panel * PANEL, lanes);
                    let [even, odd] = steps.map(|(address, lanes)| load_first(address, lanes));
                    for (tile, joined) in [front, back].into_iter().zip(join(even, odd)) {
                        Avx512Vector::of_bits(joined).store(tile.add(pair * 64).cast());
                    }
                }
            }
        }
    }
}

/// Packs a block of A whose lanes are adjacent: sixteen lanes at a time, so that a square stays in registers.
///
/// # Safety
/// As for [`pack_a`].
#[inline(always)]
unsafe fn pack_lanes_as_rows(block: &PairsBlock<Bf16>) {
    let blocks = block.steps.div_ceil(PAIRS_BLOCK);
    for index in 0..blocks {
        for half in 0..block.lanes.next_multiple_of(PANEL) / SIDE {
            let lanes = block.lanes.saturating_sub(half * SIDE).min(SIDE);
            // SAFETY: of these lanes and steps the source has as many as are loaded; the panels have the two tiles of each block.
            unsafe {
                let mut square = [Avx512Vector::zero(); SIDE];
                for (pair, register) in square.iter_mut().enumerate() {
                    let steps = pair_of(block, index * PAIRS_BLOCK + 2 * pair, half * SIDE, lanes);
                    let [even, odd] = steps.map(|(address, lanes)| load_first_half(address, lanes));
                    *register = Avx512Vector::of_bits(_mm512_or_si512(even, _mm512_slli_epi32::<16>(odd)));
                }
                store(&AsColumns::rows_of(square), block.target.add(place(half, index, blocks)));
            }
        }
    }
}

/// Where the tile of a half panel and a block of steps lies, in bytes.
#[inline(always)]
fn place(half: usize, index: usize, blocks: usize) -> usize {
    ((half / 2 * blocks + index) * 2 + half % 2) * TILE
}

/// Pairs of the same lanes of two steps: the first sixteen lanes, and the others.
///
/// # Safety
/// The machine has AVX-512 BW.
#[inline(always)]
unsafe fn join(even: __m512i, odd: __m512i) -> [__m512i; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        // Each quarter of a register has eight lanes, of which these are the first four and the others.
        let (low, high) = (_mm512_unpacklo_epi16(even, odd), _mm512_unpackhi_epi16(even, odd));
        let front = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
        let back = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
        [_mm512_permutex2var_epi64(low, front, high), _mm512_permutex2var_epi64(low, back, high)]
    }
}
