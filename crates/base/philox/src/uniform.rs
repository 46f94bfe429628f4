//! Words to uniform numbers. Every conversion is exact or correctly rounded, hence the same everywhere.

/// Uniform in `[0, 1)` with 24 bits: the multiples of 2^-24, all exact in f32.
#[inline(always)]
pub fn half_open_f32(word: u32) -> f32 {
    (word >> 8) as i32 as f32 * (1.0 / (1u32 << 24) as f32)
}

/// Uniform in `(0, 1]`, fine near zero (the smallest value is 2^-33): the argument of a logarithm.
/// The value is `(word + 1/2) * 2^-32`, the word rounded to f32 first.
#[inline(always)]
pub fn open_closed_f32(word: u32) -> f32 {
    const UNIT: f32 = 1.0 / (1u64 << 32) as f32;
    // Both steps are single roundings: the scaling by a power of two is exact.
    word as f32 * UNIT + 0.5 * UNIT
}

/// Uniform in `[0, 1)` with 53 bits from two words, the first the more significant.
#[inline(always)]
pub fn half_open_f64(high: u32, low: u32) -> f64 {
    let bits = (u64::from(high) << 32 | u64::from(low)) >> 11;
    bits as f64 * (1.0 / (1u64 << 53) as f64)
}

/// The number of the 2^32 words that an event of this probability takes: it happens when `word < threshold`.
/// `probability * 2^32`, rounded to nearest; probabilities outside `[0, 1)` saturate.
#[inline(always)]
pub fn probability_threshold(probability: f32) -> u32 {
    (f64::from(probability) * 4_294_967_296.0).round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_closed_and_open_where_they_say() {
        assert_eq!(half_open_f32(0), 0.0);
        assert_eq!(half_open_f32(u32::MAX), 1.0 - f32::EPSILON / 2.0);
        assert_eq!(open_closed_f32(0), 2f32.powi(-33));
        assert_eq!(open_closed_f32(u32::MAX), 1.0);
        assert_eq!(half_open_f64(0, 0), 0.0);
        assert_eq!(half_open_f64(u32::MAX, u32::MAX), 1.0 - f64::EPSILON / 2.0);
    }

    #[test]
    fn thresholds_round_and_saturate() {
        assert_eq!(probability_threshold(0.0), 0);
        assert_eq!(probability_threshold(0.5), 1 << 31);
        assert_eq!(probability_threshold(0.1), 429_496_736);
        assert_eq!(probability_threshold(1.0), u32::MAX);
        assert_eq!(probability_threshold(-1.0), 0);
    }
}
