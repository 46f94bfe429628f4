//! Sums that associate: f64 values are rounded once to fixed point and added as integers.
//!
//! A sum is [`SUM_WORDS`] words of 64 bits: eight limbs of 32 bits, lowest first, of a whole number in units of 2^-80;
//! then how many values were not finite or too large; then a count that the caller keeps. Words are added one by one,
//! across blocks and across ranks, without carries, and those of a negative value are negative: each value adds less
//! than 2^32 to a limb, so 2^31 values fit. Any order and any grouping gives the same words.

use device::{NOT_FINITE_WORD, SUM_WORDS};

/// Limbs of the integer.
const LIMBS: usize = NOT_FINITE_WORD;
const LIMB_BITS: i32 = 32;
/// Bits of the fraction: the unit is 2^-80, about 8e-25.
const FRACTION_BITS: i32 = 80;
/// Values from 2^160 on are too large: the limbs of a value are at most three neighbours, and these would be the last.
/// The losses of a sequence are below, each of which is at most the largest number of single precision, about 2^128. So
/// is the square of a norm of 1e24, which is far from what any clipping saves.
const LIMIT_BITS: i32 = 160;
const SIGNIFICAND_BITS: i32 = f64::MANTISSA_DIGITS as i32;

const _: () = assert!((LIMIT_BITS + FRACTION_BITS - SIGNIFICAND_BITS) / LIMB_BITS + 2 < LIMBS as i32);

/// Adds `value`, rounded to the nearest multiple of 2^-80, to the limbs of `words`.
pub fn add(words: &mut [i64], value: f64) {
    assert_eq!(words.len(), SUM_WORDS, "words of a sum");
    if value.is_nan() || value.abs() >= power_of_two(LIMIT_BITS) {
        words[NOT_FINITE_WORD] += 1;
        return;
    }
    // Scaling by a power of two is exact, and so is the conversion of a whole number of no more bits than a
    // significand.
    let units = (value * power_of_two(FRACTION_BITS)).round_ties_even();
    let exponent = (units.to_bits() >> (SIGNIFICAND_BITS - 1) & 0x7ff) as i32 - 1023;
    let shift = (exponent + 1 - SIGNIFICAND_BITS).max(0);
    let mut rest = i128::from((units * power_of_two(-shift)) as i64) << (shift % LIMB_BITS);
    let first = (shift / LIMB_BITS) as usize;
    for word in &mut words[first..first + 2] {
        *word += (rest & 0xFFFF_FFFF) as i64;
        rest >>= LIMB_BITS;
    }
    // The third carries the sign.
    words[first + 2] += rest as i64;
}

/// The sum as f64, within one unit in the last place; NaN if a value was not finite.
pub fn to_f64(words: &[i64]) -> f64 {
    assert_eq!(words.len(), SUM_WORDS, "words of a sum");
    if words[NOT_FINITE_WORD] != 0 {
        return f64::NAN;
    }
    // The magnitude is converted, because the parts of a negative number would cancel.
    magnitude(words, 1).or_else(|| Some(-magnitude(words, -1)?)).unwrap_or_default()
}

/// `sign` times the sum, unless that is negative.
fn magnitude(words: &[i64], sign: i128) -> Option<f64> {
    let (mut limbs, mut carry) = ([0u32; LIMBS - 1], 0);
    for (limb, &word) in limbs.iter_mut().zip(words) {
        let total = i128::from(word) * sign + carry;
        *limb = total as u32;
        carry = total >> LIMB_BITS;
    }
    let high = i128::from(words[LIMBS - 1]) * sign + carry;
    // Of the roundings only that of the limb in which the significand ends counts: those below change nothing but ties.
    let joined = |sum: f64, limb: &u32| sum * power_of_two(LIMB_BITS) + f64::from(*limb);
    (high >= 0).then(|| limbs.iter().rev().fold(high as f64, joined) * power_of_two(-FRACTION_BITS))
}

fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(values: &[f64]) -> [i64; SUM_WORDS] {
        let mut words = [0; SUM_WORDS];
        for &value in values {
            add(&mut words, value);
        }
        words
    }

    #[test]
    fn values_come_back() {
        for value in [
            0.0,
            1.0,
            -1.0,
            0.1,
            -0.1,
            1e13,
            -3.5e12,
            2f64.powi(-80),
            2f64.powi(45) + 0.5,
            1e-20,
            7e14,
            -3e22,
            1.1e30,
            -2f64.powi(99),
            6e36,
            -2f64.powi(159),
        ] {
            let error = (to_f64(&sum(&[value])) - value).abs();
            assert!(error <= 2f64.powi(-81) + value.abs() * f64::EPSILON, "{value}: {error:e}");
        }
    }

    #[test]
    fn order_and_grouping_do_not_matter() {
        let values: Vec<f64> = (0..1000).map(|i| (f64::from(i) * 0.7).sin() * 10f64.powi(i % 25 - 12)).collect();
        let all = sum(&values);
        let mut reversed = values.clone();
        reversed.reverse();
        assert_eq!(sum(&reversed), all);
        let parts: Vec<_> = values.chunks(77).map(sum).collect();
        let added: [i64; SUM_WORDS] = std::array::from_fn(|word| parts.iter().map(|part| part[word]).sum());
        assert_eq!(added, all);
        let plain: f64 = values.iter().sum();
        assert!((to_f64(&all) - plain).abs() < 1e-12 * plain.abs().max(1.0) * 1000.0);
    }

    #[test]
    fn large_and_small_values_do_not_disturb_each_other() {
        let large = 2f64.powi(159) * 1.9;
        assert_eq!(to_f64(&sum(&[large, 0.3, -large, -2.5, 1e20, -1e20])), -2.2);
        assert_eq!(to_f64(&sum(&[-large, -large, large])), -large);
    }

    #[test]
    fn what_is_not_finite_is_counted() {
        let words = sum(&[1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 2f64.powi(160), 2.0]);
        assert_eq!(words[NOT_FINITE_WORD], 4);
        assert!(to_f64(&words).is_nan());
    }
}
