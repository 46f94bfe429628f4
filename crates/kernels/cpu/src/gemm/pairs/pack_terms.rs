//! Panels of terms for AMX, with AVX-512: for each block of 32 steps the two tiles of each term, one term after the
//! other.

use std::arch::x86_64::*;

use super::PAIRS_BLOCK;
use super::pack_pairs::{Arrangement, AsColumns, AsRows, PANEL, SIDE, TILE, lanes_of, rows_of_pair};
use super::terms::{self, LEAST_LARGE, TERMS, UPPER};
use super::tile::{Adjacent, PairsBlock};
use crate::gemm::vector::Vector;
use crate::gemm::vector_avx512::Avx512Vector;

/// Packs rows of A.
///
/// # Safety
/// The machine has AVX-512 F and BW; the source may be read and the panels written for the block's shape.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
pub(super) unsafe fn pack_a(block: &PairsBlock<f32>) {
    // SAFETY: the caller's promise.
    unsafe {
        match block.adjacent {
            Adjacent::Steps => pack_steps_as_rows(block),
            Adjacent::Lanes => pack_lanes::<AsColumns>(block),
        }
    }
}

/// Packs columns of B.
///
/// # Safety
/// As for [`pack_a`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
pub(super) unsafe fn pack_b(block: &PairsBlock<f32>) {
    // SAFETY: the caller's promise.
    unsafe {
        match block.adjacent {
            Adjacent::Steps => pack_steps_as_columns(block),
            Adjacent::Lanes => pack_lanes::<AsRows>(block),
        }
    }
}

/// The first `count` of sixteen consecutive numbers, zeros after them.
///
/// # Safety
/// The machine has AVX-512; these numbers can be read.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn load_first(source: *const f32, count: usize) -> __m512 {
    // SAFETY: the caller's promise; masked numbers are not read.
    unsafe {
        if count >= SIDE {
            _mm512_loadu_ps(source)
        } else {
            _mm512_maskz_loadu_ps(((1u32 << count) - 1) as __mmask16, source)
        }
    }
}

/// Sixteen numbers rounded to bf16, in the upper halves of 32 bits each.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn rounded(numbers: __m512) -> __m512i {
    let nearest = _mm512_add_epi32(_mm512_castps_si512(numbers), _mm512_set1_epi32(0x8000));
    _mm512_and_si512(nearest, _mm512_set1_epi32(UPPER as i32))
}

/// The [terms](super::terms::split) of sixteen numbers, in the upper halves of 32 bits each; the lower halves of the
/// third mean nothing. No closures here and below: one inside a function of the standard library would not be compiled
/// into it.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn split(numbers: __m512) -> [__m512i; TERMS] {
    let sizes = _mm512_and_si512(_mm512_castps_si512(numbers), _mm512_set1_epi32(i32::MAX));
    if _mm512_cmpge_epi32_mask(sizes, _mm512_set1_epi32(LEAST_LARGE.to_bits() as i32)) != 0 {
        return split_one_by_one(numbers);
    }
    let first = rounded(numbers);
    let rest = _mm512_sub_ps(numbers, _mm512_castsi512_ps(first));
    let second = rounded(rest);
    [first, second, _mm512_castps_si512(_mm512_sub_ps(rest, _mm512_castsi512_ps(second)))]
}

/// Returns the same as [`split`], also where numbers are infinite, NaN, or too large to be rounded to bf16.
#[cold]
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn split_one_by_one(numbers: __m512) -> [__m512i; TERMS] {
    let mut lanes = [0.0f32; SIDE];
    // SAFETY: each array has as many numbers as a register.
    unsafe {
        _mm512_storeu_ps(lanes.as_mut_ptr(), numbers);
        let mut of_lanes = [[0.0f32; SIDE]; TERMS];
        for (lane, number) in lanes.into_iter().enumerate() {
            for (term, value) in terms::split(number).into_iter().enumerate() {
                of_lanes[term][lane] = value;
            }
        }
        let mut registers = [_mm512_setzero_si512(); TERMS];
        for (register, lanes) in registers.iter_mut().zip(&of_lanes) {
            *register = _mm512_castps_si512(_mm512_loadu_ps(lanes.as_ptr()));
        }
        registers
    }
}

/// The tiles of each term, for half a panel and a block of steps.
#[inline(always)]
fn tiles(block: &PairsBlock<f32>, half: usize, index: usize) -> [*mut u8; TERMS] {
    let blocks = block.steps.div_ceil(PAIRS_BLOCK);
    let of_term = |term: usize| ((half / 2 * blocks + index) * TERMS + term) * 2 + half % 2;
    std::array::from_fn(|term| block.target.wrapping_add(of_term(term) * TILE))
}

/// Packs a block whose steps are adjacent: registers of sixteen steps become one of a lane's pairs for each term.
///
/// # Safety
/// As for [`pack_a`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn pack_steps_as_rows(block: &PairsBlock<f32>) {
    for half in 0..block.lanes.next_multiple_of(PANEL) / SIDE {
        let lanes = block.lanes.saturating_sub(half * SIDE).min(SIDE);
        for index in 0..block.steps.div_ceil(PAIRS_BLOCK) {
            let (steps, tiles) = ((block.steps - index * PAIRS_BLOCK).min(PAIRS_BLOCK), tiles(block, half, index));
            // SAFETY: of these lanes and steps the source has as many as are loaded; the panels have the tiles of each
            // block.
            unsafe {
                // The upper halves of two registers, those of the first one first.
                let upper: [u16; 32] = std::array::from_fn(|number| 2 * number as u16 + 1);
                let upper = _mm512_loadu_si512(upper.as_ptr().cast());
                for lane in 0..lanes {
                    let numbers = block.source.add((half * SIDE + lane) * block.source_stride + index * PAIRS_BLOCK);
                    // The same steps of the lanes after these: each row is a stream that the machine does not foresee.
                    Avx512Vector::prefetch(numbers.wrapping_add(SIDE * block.source_stride));
                    Avx512Vector::prefetch(numbers.wrapping_add(SIDE * block.source_stride + SIDE));
                    let front = split(load_first(numbers, steps));
                    let back = split(load_first(numbers.wrapping_add(SIDE), steps.saturating_sub(SIDE)));
                    for term in 0..TERMS {
                        let pairs = _mm512_permutex2var_epi16(front[term], upper, back[term]);
                        _mm512_store_si512(tiles[term].add(lane * 64).cast(), pairs);
                    }
                }
                for tile in tiles {
                    tile.add(lanes * 64).write_bytes(0, (SIDE - lanes) * 64);
                }
            }
        }
    }
}

/// Packs a block of B whose steps are adjacent: squares of numbers are transposed, which are fewer than those of pairs
/// of terms.
///
/// # Safety
/// As for [`pack_a`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn pack_steps_as_columns(block: &PairsBlock<f32>) {
    for half in 0..block.lanes.next_multiple_of(PANEL) / SIDE {
        let lanes = block.lanes.saturating_sub(half * SIDE).min(SIDE);
        for index in 0..block.steps.div_ceil(PAIRS_BLOCK) {
            let tiles = tiles(block, half, index);
            for quarter in 0..2 {
                let first = index * PAIRS_BLOCK + quarter * SIDE;
                // SAFETY: of these lanes and steps the source has as many as are loaded; the panels have the tiles of
                // each block.
                unsafe {
                    let mut square = [Avx512Vector::zero(); SIDE];
                    for (lane, register) in square.iter_mut().enumerate().take(lanes) {
                        let numbers = block.source.wrapping_add((half * SIDE + lane) * block.source_stride + first);
                        // The same steps of the lanes after these: each row is a stream that the machine does not
                        // foresee.
                        Avx512Vector::prefetch(numbers.wrapping_add(SIDE * block.source_stride));
                        *register = Avx512Vector::of(load_first(numbers, block.steps.saturating_sub(first)));
                    }
                    Avx512Vector::transpose(&mut square);
                    for (pair, [even, odd]) in square.as_chunks().0.iter().enumerate() {
                        store_pairs(tiles, quarter * SIDE / 2 + pair, split(even.numbers()), split(odd.numbers()));
                    }
                }
            }
        }
    }
}

/// Writes a row of the tiles of each term: sixteen lanes' pairs of two steps.
///
/// # Safety
/// The machine has AVX-512 BW; the tiles can be written.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn store_pairs(tiles: [*mut u8; TERMS], row: usize, even: [__m512i; TERMS], odd: [__m512i; TERMS]) {
    for term in 0..TERMS {
        // SAFETY: the caller's promise.
        unsafe {
            let pairs = _mm512_mask_blend_epi16(0xaaaa_aaaa, _mm512_srli_epi32::<16>(even[term]), odd[term]);
            _mm512_store_si512(tiles[term].add(row * 64).cast(), pairs);
        }
    }
}

/// Packs a block whose lanes are adjacent: registers of two steps become one of sixteen lanes' pairs for each term. Two
/// rows are read from end to end, for the machine foresees a few long streams and not many short ones.
///
/// # Safety
/// As for [`pack_a`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn pack_lanes<A: Arrangement>(block: &PairsBlock<f32>) {
    let halves = block.lanes.next_multiple_of(PANEL) / SIDE;
    for index in 0..block.steps.div_ceil(PAIRS_BLOCK) {
        for pair in 0..SIDE {
            let step = index * PAIRS_BLOCK + 2 * pair;
            for half in 0..halves {
                let lane = half * SIDE;
                let lanes = block.lanes.saturating_sub(lane).min(SIDE);
                let (even_lanes, odd_lanes) = (lanes_of(block, step, lanes), lanes_of(block, step + 1, lanes));
                // SAFETY: of these lanes and steps the source has as many as are loaded; the panels have the tiles of
                // each block.
                unsafe {
                    let [even, odd] = rows_of_pair(block, step, lane);
                    let (even, odd) = (split(load_first(even, even_lanes)), split(load_first(odd, odd_lanes)));
                    store_pairs(tiles(block, half, index), pair, even, odd);
                }
            }
        }
        for half in 0..halves {
            for tile in tiles(block, half, index) {
                // SAFETY: the caller's promise; the tile has been written.
                unsafe { A::arrange(tile) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The upper halves of the terms of sixteen numbers.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
    fn upper_halves(numbers: &[f32; SIDE]) -> [[u32; SIDE]; TERMS] {
        // SAFETY: each array has as many numbers as a register.
        unsafe {
            let registers = split(_mm512_loadu_ps(numbers.as_ptr()));
            let mut halves = [[0; SIDE]; TERMS];
            for (half, register) in halves.iter_mut().zip(registers) {
                _mm512_storeu_si512(half.as_mut_ptr().cast(), register);
                half.iter_mut().for_each(|bits| *bits &= UPPER);
            }
            halves
        }
    }

    /// Numbers of any bits, in registers with and without those that are split one by one.
    #[needs::avx512]
    #[test]
    fn registers_have_the_terms_of_their_numbers() {
        let specials = [0x7f7f_7fff, 0x7f7f_8000, 0x7f7f_ffff, 0x7f80_0000, 0xff80_0000, 0x7f80_0001, u32::MAX];
        let mut bits = 1u32;
        for turn in 0..100_000 {
            let mut numbers = [0.0f32; SIDE];
            for number in &mut numbers {
                bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                // Below the border, so that most registers are split at once.
                *number = f32::from_bits(bits & 0xbfff_ffff);
            }
            if turn % 4 == 0 {
                numbers[turn / 4 % SIDE] = f32::from_bits(specials[turn / 4 % specials.len()]);
            }
            // SAFETY: the machine has AVX-512.
            let halves = unsafe { upper_halves(&numbers) };
            for (lane, number) in numbers.into_iter().enumerate() {
                for (term, expected) in terms::split(number).into_iter().enumerate() {
                    let actual = f32::from_bits(halves[term][lane]);
                    let is_same =
                        actual.to_bits() == expected.to_bits() & UPPER || actual.is_nan() && expected.is_nan();
                    assert!(is_same, "term {term} of {number:e} is {actual:e}, not {expected:e}");
                }
            }
        }
    }
}
