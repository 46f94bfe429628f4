//! Exponential and logarithm in f64, for values that are computed once: tables of angles, losses of rows.

const LN2_HIGH: f64 = f64::from_bits(0x3FE6_2E42_FEE0_0000);
const LN2_LOW: f64 = f64::from_bits(0x3DEA_39EF_3579_3C76);

/// `e^x` within 2^-51 relatively for |x| <= 700; the same bits everywhere.
pub fn exp_f64(x: f64) -> f64 {
    let count = (x * std::f64::consts::LOG2_E).round_ties_even();
    let rest = (-count).mul_add(LN2_HIGH, x);
    let rest = (-count).mul_add(LN2_LOW, rest);
    // Taylor series to r^14 on |r| <= ln(2)/2: the remainder is below 2^-60.
    let mut sum = 1.0;
    let mut n = 14;
    while n > 0 {
        sum = 1.0 + rest / f64::from(n) * sum;
        n -= 1;
    }
    let biased = (count as i64 + 1023).clamp(0, 2046) as u64;
    sum * f64::from_bits(biased << 52)
}

/// Natural logarithm of a normal number within 2^-50 relatively; the same bits everywhere.
/// Minus infinity from zero to the smallest normal number, NaN below zero and of NaN.
pub fn log_f64(x: f64) -> f64 {
    if x.is_nan() || x < 0.0 {
        return f64::NAN;
    }
    if !x.is_normal() {
        return if x > 1.0 { x } else { f64::NEG_INFINITY };
    }
    const SQRT_HALF_BITS: i64 = 0x3FE6_A09E_667F_3BCD;
    let exponent = (x.to_bits() as i64 - SQRT_HALF_BITS) >> 52;
    let significand = f64::from_bits((x.to_bits() as i64 - (exponent << 52)) as u64);
    // log((1 + s) / (1 - s)) = 2 (s + s^3/3 + s^5/5 + ...) on |s| <= 0.172, to s^23: the remainder is below 2^-60.
    let s = (significand - 1.0) / (significand + 1.0);
    let square = s * s;
    let mut sum = 0.0;
    let mut n = 23;
    while n > 1 {
        sum = (sum + 1.0 / f64::from(n)) * square;
        n -= 2;
    }
    let exponent = exponent as f64;
    let series = 2.0 * s;
    exponent.mul_add(LN2_HIGH, series + series.mul_add(sum, exponent * LN2_LOW))
}
