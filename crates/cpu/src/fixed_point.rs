//! Sums that associate: f64 values are rounded once to fixed point and added as integers.
//!
//! A sum is [`SUM_WORDS`] words of 64 bits: four limbs of 32 bits, lowest first, of a two's complement integer in units
//! of 2^-80; then how many values were not finite or too large; then a count that the caller keeps. Words are added
//! one by one, across blocks and across ranks, without carries: each value adds less than 2^32 to a limb, so
//! 2^31 values fit. Any order and any grouping gives the same words.

use device::SUM_WORDS;

/// Limbs of the integer.
const LIMBS: usize = 4;
/// Bits of the fraction: the unit is 2^-80, about 8e-25.
const FRACTION_BITS: i32 = 80;
/// Values from 2^46 on are too large: 16 of their size would no longer fit into the limbs.
const LIMIT: f64 = (1u64 << 46) as f64;
/// The word that counts values that were not finite or too large.
pub const NOT_FINITE_WORD: usize = LIMBS;
/// The word for a count of the caller's.
pub const COUNT_WORD: usize = device::COUNT_WORD;

/// Adds `value`, rounded to the nearest multiple of 2^-80, to the limbs of `words`.
pub fn add(words: &mut [i64], value: f64) {
    assert_eq!(words.len(), SUM_WORDS, "words of a sum");
    if value.is_nan() || value.abs() >= LIMIT {
        words[NOT_FINITE_WORD] += 1;
        return;
    }
    // Scaling by a power of two is exact, and so is the conversion of a whole number.
    let mut rest = (value * power_of_two(FRACTION_BITS)).round_ties_even() as i128;
    for word in &mut words[..LIMBS - 1] {
        *word += (rest & 0xFFFF_FFFF) as i64;
        rest >>= 32;
    }
    // The highest limb carries the sign.
    words[LIMBS - 1] += rest as i64;
}

/// The sum as f64, within one unit in the last place; NaN if a value was not finite.
pub fn to_f64(words: &[i64]) -> f64 {
    assert_eq!(words.len(), SUM_WORDS, "words of a sum");
    if words[NOT_FINITE_WORD] != 0 {
        return f64::NAN;
    }
    // The magnitude is converted, because both parts of a negative number would cancel.
    let (high, low) = normalized(words, 1);
    if high >= 0 {
        return magnitude(high, low);
    }
    let (high, low) = normalized(words, -1);
    -magnitude(high, low)
}

/// The integer of the limbs times `sign` as `high * 2^96 + low`, with `low` in `0..2^96`.
fn normalized(words: &[i64], sign: i128) -> (i128, i128) {
    let (mut low, mut carry) = (0, 0);
    for (limb, &word) in words[..LIMBS - 1].iter().enumerate() {
        let total = i128::from(word) * sign + carry;
        low |= (total & 0xFFFF_FFFF) << (32 * limb);
        carry = total >> 32;
    }
    (i128::from(words[LIMBS - 1]) * sign + carry, low)
}

fn magnitude(high: i128, low: i128) -> f64 {
    high as f64 * power_of_two(96 - FRACTION_BITS) + low as f64 * power_of_two(-FRACTION_BITS)
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
        for value in [0.0, 1.0, -1.0, 0.1, -0.1, 1e13, -3.5e12, 2f64.powi(-80), 2f64.powi(45) + 0.5, 1e-20] {
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
    fn what_is_not_finite_is_counted() {
        let words = sum(&[1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e14, 2.0]);
        assert_eq!(words[NOT_FINITE_WORD], 4);
        assert!(to_f64(&words).is_nan());
    }
}
