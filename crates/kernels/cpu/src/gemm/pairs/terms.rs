//! Products of single precision by tiles of bf16: each number enters as the sum of three numbers of bf16, its terms.
//!
//! # Numerics
//! The terms of a finite number are `first`, it rounded to bf16, but at most [`LARGEST`] in size;
//! `second`, the rest rounded to bf16; and `third`, the rest after that: to nearest, with ties away from zero. An
//! infinite number has the terms 1, 0 and infinity, with its sign; NaN has a term that is NaN. Each element of C is
//! computed in the same way on every instruction set, for any number of rows and columns, any strides and any split
//! of the work:
//!
//! 1. K is cut into runs of [`TERMS_RUN`] steps, from step 0 on, and each run into blocks of [`PAIRS_BLOCK`]; the last
//!    block is filled up with zeros.
//! 2. Per run `sum = +0`. For each block in ascending order, and for each of the six [`TERM_PRODUCTS`] in their order,
//!    the products of A's terms and B's are added as steps 2 and 3 of [products in AMX order](super) say: two chains
//!    from +0 on, and `sum = sum + (even + odd)`.
//! 3. With `Write::Assign` the first run's sum becomes `c`; otherwise `c = c + sum`. With a bias, `c = c +
//!    bias[column]` at the end.
//!
//! # Exactness
//! A number of at least 2^e has no bit below 2^(e - 23), so none of its terms that is not zero is smaller. The tiles
//! take terms below 2^-126 as zeros. Hence
//!
//! | size | the sum of the terms that enter |
//! |---|---|
//! | 2^-103 and more, finite | the number |
//! | 2^-126 to 2^-103 | within 2^-126, and within 2^-8 of the number |
//! | below 2^-126 | zero |
//! | infinite | infinite |
//!
//! Of an infinite number only the third term is infinite. It meets only the first term of the other operand, which is
//! zero only where the operand is zero or below 2^-126: then the result is NaN.
//!
//! # Error
//! A second term is at most 2^-8 of the number and a third 2^-17 (both times 1 + 2^-9 above 2^128 - 2^119), so the
//! three products of terms that are left out are at most `(2^-24 + 2^-34) |a b|`, or 1.004 times that. The sizes of the
//! terms add up to at most 259 / 257 of the number's (of 1 + 2^-8, which becomes 1 + 2^-7 and -2^-8), those of the six
//! products to at most 1.016 |a b|. Let u = 2^-24, m(x) the most by which the terms that enter miss x in the table
//! above, and n = ceil(min(K, 32) / 2) + 1 + 6 ceil(min(K, 512) / 32) + ceil(K / 512) + 1 the roundings on the longest
//! path. Then the error of an element is at most
//!
//! ```text
//! (1.016 n u / (1 - n u) + 1.01 u) sum |a b| + n u / (1 - n u) (|c| + |bias|)
//! + 2^-126 (6 K + 12 ceil(K / 32)) + 1.02 sum (m(a) |b| + m(b) |a| + m(a) m(b))
//! ```
//!
//! as long as no sum overflows: none does where `1.016 sum |a b| + |c| + |bias|` is below 2^128 (1 - 2 n u). n is 91 at
//! K = 384 and at most 114 + ceil(K / 512) at any K, where chained products have 259 and 257 + ceil(K / 256).

/// Numbers of bf16 that one of single precision is the sum of.
pub(crate) const TERMS: usize = 3;

/// Steps of K that are summed from zero on. Part of the numerics.
pub const TERMS_RUN: usize = 512;

/// Which terms of A and of B are multiplied, in the order in which their products are added: each product has a term in
/// common with the one before.
pub(super) const TERM_PRODUCTS: [(usize, usize); 6] = [(2, 0), (1, 0), (1, 1), (0, 1), (0, 2), (0, 0)];

/// The bits that a number of single precision shares with one of bf16.
pub(super) const UPPER: u32 = 0xffff_0000;

/// The largest finite number of bf16, 2^128 - 2^120.
pub(super) const LARGEST: f32 = f32::from_bits(0x7f7f_0000);

/// 2^128 - 2^119: from here on bf16's nearest number is infinite, or the number is infinite or NaN itself.
pub(super) const LEAST_LARGE: f32 = f32::from_bits(0x7f7f_8000);

/// The terms of a number.
#[inline(always)]
pub(super) fn split(number: f32) -> [f32; TERMS] {
    let rounded = |number: f32| f32::from_bits(number.to_bits().wrapping_add(0x8000) & UPPER);
    let nearest = rounded(number);
    let first = if nearest.is_infinite() { LARGEST.copysign(number) } else { nearest };
    let rest = number - first;
    let second = rounded(rest);
    let third = rest - second;
    // Both cases are computed, so that the compiler makes vectors of a loop over numbers. A normal third term has no
    // more bits.
    if number.is_infinite() {
        [1.0f32.copysign(number), 0.0, number]
    } else {
        [first, second, f32::from_bits(third.to_bits() & UPPER)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the sizes that the bound of the error is derived from.
    fn assert_sizes(number: f32, terms: [f32; TERMS]) {
        let [first, second, third] = terms.map(|term| f64::from(term.abs() / number.abs()));
        let slack = if number.abs() < LEAST_LARGE { 1.0 } else { 1.0 + 2.0f64.powi(-9) };
        assert!(second <= slack * 2.0f64.powi(-8) && third <= slack * 2.0f64.powi(-17), "{number:e}: {terms:?}");
        assert!(first + second + third <= 1.008, "{number:e}: {terms:?}");
    }

    #[test]
    fn the_largest_terms_are_those_that_the_bound_has() {
        // Ties, and numbers next to them, in the first and the second term.
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
    fn terms_are_numbers_of_bf16_whose_sum_is_the_number() {
        let mut bits = 1u32;
        for _ in 0..1_000_000 {
            bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let number = f32::from_bits(bits);
            let terms = split(number);
            assert!(terms.iter().all(|term| term.to_bits() & 0xffff == 0), "{number:e}: {terms:?}");
            // Bits below 2^-133 are cut off.
            if number.abs() >= 2.0f32.powi(-110) && number.is_finite() {
                assert_is_split(number);
            }
            assert!(!number.is_nan() || terms.iter().any(|term| term.is_nan()), "{number}: {terms:?}");
        }
        for nan in [u32::MAX, 0x7f80_0001, 0x7fff_8000, 0xff80_8000].map(f32::from_bits) {
            assert!(split(nan).iter().any(|term| term.is_nan()), "{:x}", nan.to_bits());
        }
    }

    fn assert_is_split(number: f32) {
        let terms = split(number);
        assert_eq!(terms.map(f64::from).iter().sum::<f64>(), f64::from(number), "{terms:?}");
        assert_sizes(number, terms);
    }

    /// All numbers whose nearest one of bf16 is infinite, and infinities.
    #[test]
    fn large_numbers_have_finite_terms_and_infinite_ones_an_infinite_third() {
        for bits in LEAST_LARGE.to_bits() - 0x1_0000..=f32::MAX.to_bits() {
            let number = f32::from_bits(bits);
            [number, -number].into_iter().for_each(assert_is_split);
        }
        assert_eq!(split(f32::INFINITY), [1.0, 0.0, f32::INFINITY]);
        assert_eq!(split(f32::NEG_INFINITY), [-1.0, 0.0, f32::NEG_INFINITY]);
    }

    /// The border above which no term is subnormal.
    #[test]
    fn terms_of_numbers_from_2_to_the_minus_103_on_are_normal_or_zero() {
        let is_whole = |number: f32| split(number).iter().all(|term| !term.is_subnormal());
        let least = 2.0f32.powi(-103);
        for step in 0..1 << 16 {
            let number = f32::from_bits(least.to_bits() + step * 127);
            assert!(is_whole(number), "{number:e}");
        }
        assert!(!is_whole(least.next_down()));
        assert!(!is_whole(2.0f32.powi(-104) * (1.0 + f32::EPSILON)));
    }
}
