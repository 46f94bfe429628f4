//! Tiles in plain Rust, for any machine: multiply-adds as the language has them, with what AMX makes zero made zero
//! afterwards.

use super::PAIRS_BLOCK;
use super::terms::{TERM_PRODUCTS, TERMS};
use super::tile::{Begin, PairsTile, RowsOfC};

const ROWS: usize = 4;
const COLUMNS: usize = 8;

/// `value`, or zero of its sign where it is subnormal.
#[inline(always)]
pub(super) fn flushed(value: f32) -> f32 {
    if value.abs() < f32::MIN_POSITIVE { 0.0f32.copysign(value) } else { value }
}

/// The fused multiply-add of operands that are not subnormal. A result below 2^-126, after rounding to 24 bits with an
/// exponent of any size, becomes zero.
#[inline(always)]
pub(super) fn multiply_add(a: f32, b: f32, addend: f32) -> f32 {
    let sum = a.mul_add(b, addend);
    if sum.abs() > f32::MIN_POSITIVE {
        return sum;
    }
    // The language rounds to a multiple of 2^-149 here, and so may reach 2^-126 from below where 24 bits do not. 2^24
    // times as large, the same sum is rounded to 24 bits. Where the addend is too large for that the sum is an exact
    // zero, which is returned.
    let factor = f32::from_bits((127 + 12) << 23);
    let scaled = (a * factor).mul_add(b * factor, addend * (factor * factor));
    if scaled.abs() < f32::MIN_POSITIVE * (factor * factor) { 0.0f32.copysign(sum) } else { sum }
}

/// Computes a tile.
///
/// # Safety
/// The panels hold `blocks` blocks of steps, and the sums can be written.
pub(super) unsafe fn tile(tile: &PairsTile) {
    tile.rows_of_c.ask_for();
    // SAFETY: the caller's promise.
    let (a, b) = unsafe {
        (
            std::slice::from_raw_parts(tile.a.cast::<[f32; ROWS]>(), tile.blocks * PAIRS_BLOCK),
            std::slice::from_raw_parts(tile.b.cast::<[f32; COLUMNS]>(), tile.blocks * PAIRS_BLOCK),
        )
    };
    let row_of_sums = |row: usize| tile.sums.wrapping_add(row * tile.sums_stride).cast::<[f32; COLUMNS]>();
    let mut sums = [[0.0; COLUMNS]; ROWS];
    for (row, sums) in sums.iter_mut().enumerate() {
        match tile.begin {
            Begin::Zero => {}
            // SAFETY: the caller's promise.
            Begin::Stored => *sums = unsafe { row_of_sums(row).read() }.map(flushed),
        }
    }
    for (a, b) in a.chunks_exact(PAIRS_BLOCK).zip(b.chunks_exact(PAIRS_BLOCK)) {
        // Even steps, then odd ones.
        let mut chains = [[[0.0f32; COLUMNS]; ROWS]; 2];
        for (step, (a, b)) in a.iter().zip(b).enumerate() {
            let b = b.map(flushed);
            for (chain, a) in chains[step % 2].iter_mut().zip(a) {
                let a = flushed(*a);
                for (chain, b) in chain.iter_mut().zip(b) {
                    *chain = multiply_add(a, b, *chain);
                }
            }
        }
        let [even, odd] = chains;
        for (sums, (even, odd)) in sums.iter_mut().zip(even.iter().zip(&odd)) {
            for (sum, (even, odd)) in sums.iter_mut().zip(even.iter().zip(odd)) {
                // A sum below 2^-126 is exact before it becomes zero.
                *sum = flushed(*sum + flushed(even + odd));
            }
        }
    }
    for (row, sums) in sums.into_iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe { row_of_sums(row).write(sums) };
    }
}

/// Computes a tile from panels that have for each block of steps one of each term: product by product.
///
/// # Safety
/// As for [`tile`], for panels of three times as many blocks.
pub(super) unsafe fn tile_of_terms(whole: &PairsTile) {
    let [a_block, b_block] = [ROWS, COLUMNS].map(|lanes| PAIRS_BLOCK * lanes * size_of::<f32>());
    // SAFETY: the caller's promise: each term of each block is inside the panels. Without blocks the sums begin, and
    // end, at zero.
    unsafe {
        tile(&PairsTile { blocks: 0, ..*whole });
        for block in 0..whole.blocks {
            for (a, b) in TERM_PRODUCTS {
                let a = whole.a.add((block * TERMS + a) * a_block);
                let b = whole.b.add((block * TERMS + b) * b_block);
                tile(&PairsTile { a, b, blocks: 1, begin: Begin::Stored, rows_of_c: RowsOfC::NEAR, ..*whole });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2^exponent.
    fn power(exponent: i32) -> f32 {
        2.0f64.powi(exponent) as f32
    }

    #[test]
    fn what_rounds_to_the_smallest_normal_number_only_among_subnormal_ones_is_zero() {
        let least = f32::MIN_POSITIVE;
        // 2^-126 - 2^-150 is a number of 24 bits: the language would round it to 2^-126.
        assert_eq!(power(-75).mul_add(-power(-75), least), least);
        assert_eq!(multiply_add(power(-75), -power(-75), least), 0.0);
        assert!(multiply_add(power(-75), power(-75), -least).is_sign_negative());
        // 2^-126 - 2^-151 is half-way between that and 2^-126, which is even.
        assert_eq!(multiply_add(power(-75), -power(-76), least), least);
        assert_eq!(multiply_add(power(-63), power(-63), 0.0), least);
        assert_eq!(multiply_add(1.0, -f32::MAX, f32::MAX), 0.0);
        assert!(multiply_add(f32::INFINITY, 0.0, 1.0).is_nan());
    }
}
