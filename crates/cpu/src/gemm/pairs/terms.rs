//! Products of single precision by tiles of bf16: each number enters as the sum of three numbers of bf16, its terms.
//!
//! # Numerics
//! The terms of a number are `first`, it rounded to bf16; `second`, what is left rounded to bf16; and `third`, what is left then: to nearest, with ties
//! away from zero. The three are the number, but for subnormal terms, which count as zeros. Of a number of at least 2^128 - 2^119, half a unit of bf16
//! below overflow, the first term is infinite and the third no number, and so of an infinite one. Each element of C is computed in the same way on every
//! instruction set, for any number of rows and columns, any strides and any split of the work:
//!
//! 1. K is cut into runs of [`TERMS_RUN`] steps, from step 0 on, and each run into blocks of [`PAIRS_BLOCK`]; the last block is filled up with zeros.
//! 2. Per run `sum = +0`. For each block in ascending order, and for each of the six [`TERM_PRODUCTS`] in their order, the products of A's terms and B's are
//!    added as step 2 and 3 of [products in pairs](super) say: two chains from +0 on, and `sum = sum + (even + odd)`.
//! 3. With `Write::Assign` the first run's sum becomes `c`; otherwise `c = c + sum`. With a bias, `c = c + bias[column]` at the end.
//!
//! A second term is at most 2^-8 of the number and a third 2^-17, so the three products of terms that are left out are at most
//! `(2^-24 + 2^-34) |a b|`. The sizes of the terms add up to at most 259 / 257 of the number's (of 1 + 2^-8, which becomes 1 + 2^-7 and -2^-8), those of
//! the six products to at most 1.016 |a b|. So the error of an element, with u = 2^-24 and
//! n = min(K, 32) / 2 + 1 + 6 ceil(min(K, 512) / 32) + ceil(K / 512) + 1 roundings on the longest path, is at most
//! `(n u / (1 - n u) * 1.016 + 1.01 u) * sum |a b| + n u / (1 - n u) * (|c| + |bias|)`, as long as sums and terms stay finite, and for what becomes zero
//! `2^-126 * (6 K + 3 sum |a| + 3 sum |b| + 12 ceil(K / 32))`. n is 91 at K = 384 and at most 114 + ceil(K / 512) at any, where chained products have 259 and
//! 257 + ceil(K / 256).

use super::engine::{Begin, PairsTile, RowsOfC};

/// Numbers of bf16 that one of single precision is the sum of.
pub(crate) const TERMS: usize = 3;

/// Steps of K that are summed from zero on. Part of the numerics.
pub const TERMS_RUN: usize = 512;

/// Which terms of A and of B are multiplied, in the order in which their products are added: each product has a term in common with the one before.
pub(super) const TERM_PRODUCTS: [(usize, usize); 6] = [(2, 0), (1, 0), (1, 1), (0, 1), (0, 2), (0, 0)];

/// The terms of a number.
#[inline(always)]
pub(super) fn split(number: f32) -> [f32; TERMS] {
    const FIRST: u32 = 0xffff_0000;
    let rounded = |number: f32| f32::from_bits(number.to_bits().wrapping_add(0x8000) & FIRST);
    let first = rounded(number);
    let rest = number - first;
    let second = rounded(rest);
    let third = rest - second;
    // A normal third term has no more bits.
    [first, second, f32::from_bits(third.to_bits() & FIRST)]
}

/// Computes a tile from panels of terms, which have for each block of steps one of each term: product by product with the tile of products in pairs, for blocks
/// of so many bytes.
///
/// # Safety
/// The caller's promise to `multiply`, for panels of three times as many blocks.
#[inline(always)]
pub(super) unsafe fn tile_by_term_products(
    multiply: unsafe fn(&PairsTile),
    tile: &PairsTile,
    (a_block_bytes, b_block_bytes): (usize, usize),
) {
    // SAFETY: the caller's promise: each term of each block lies inside the panels. Without blocks the sums begin, and end, at zero.
    unsafe {
        multiply(&PairsTile { blocks: 0, ..*tile });
        for block in 0..tile.blocks {
            for (a, b) in TERM_PRODUCTS {
                let a = tile.a.add((block * TERMS + a) * a_block_bytes);
                let b = tile.b.add((block * TERMS + b) * b_block_bytes);
                multiply(&PairsTile { a, b, blocks: 1, begin: Begin::Stored, rows_of_c: RowsOfC::NEAR, ..*tile });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2^128 - 2^119
    const LEAST_WITHOUT_TERMS: f32 = f32::from_bits(0x7f7f_8000);

    /// What the bound of the error is made of.
    fn assert_sizes(number: f32, terms: [f32; TERMS]) {
        let [first, second, third] = terms.map(|term| f64::from(term.abs() / number.abs()));
        assert!(second <= 2.0f64.powi(-8) && third <= 2.0f64.powi(-17), "{number:e}: {terms:?}");
        assert!(first + second + third <= 1.008, "{number:e}: {terms:?}");
    }

    #[test]
    fn the_largest_terms_are_those_that_the_bound_has() {
        // Ties, and numbers beside them, in the first and the second term.
        for number in [1.0 + 2.0f32.powi(-8), 1.0 + 2.0f32.powi(-8) - 2.0f32.powi(-17), 1.0 - 2.0f32.powi(-24)] {
            assert_sizes(number, split(number));
        }
        let number = 1.0 + 2.0f32.powi(-8);
        let terms = split(number);
        assert_eq!(terms, [1.0 + 2.0f32.powi(-7), -2.0f32.powi(-8), 0.0]);
        let squares: f64 = TERM_PRODUCTS.iter().map(|(a, b)| f64::from(terms[*a] * terms[*b]).abs()).sum();
        let of_product = squares / f64::from(number).powi(2);
        assert!(1.0156 < of_product && of_product < 1.016, "{of_product}");
    }

    #[test]
    fn parts_are_numbers_of_bf16_whose_sum_is_the_number() {
        let mut bits = 1u32;
        for _ in 0..1_000_000 {
            bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let number = f32::from_bits(bits);
            let terms = split(number);
            assert!(terms.iter().all(|term| term.to_bits() & 0xffff == 0), "{number:e}: {terms:?}");
            // Bits below 2^-133 are cut off, and numbers within half a unit of overflow have infinite terms.
            if number.abs() >= 2.0f32.powi(-110) && number.abs() < LEAST_WITHOUT_TERMS {
                let sum: f64 = terms.iter().map(|term| f64::from(*term)).sum();
                assert_eq!(sum, f64::from(number));
                assert_sizes(number, terms);
            }
            assert!(number.is_finite() || terms.iter().any(|term| term.is_nan()), "{number}: {terms:?}");
        }
        for number in
            [f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::from_bits(u32::MAX), f32::from_bits(0x7f80_0001)]
        {
            assert!(split(number).iter().any(|term| !term.is_finite()), "{number}");
        }
        assert!(split(LEAST_WITHOUT_TERMS)[2].is_nan());
        let below = LEAST_WITHOUT_TERMS.next_down();
        assert_eq!(split(below).map(f64::from).iter().sum::<f64>(), f64::from(below));
    }
}
