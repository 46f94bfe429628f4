//! Sine and cosine: in f64 for the tables of rotary positions, in lanes for Box-Muller.

use super::polynomial;
use crate::lanes::{LANES, Lanes};

/// pi/2 in three parts; the first two have 33 bits, so that their products with the quadrant are exact.
const HALF_PI: [f64; 3] = [
    f64::from_bits(0x3FF9_21FB_5440_0000),
    f64::from_bits(0x3DD0_B461_1A60_0000),
    f64::from_bits(0x3BA3_198A_2E03_7073),
];

/// `(sin x, cos x)` within 2^-50 absolutely, for |x| up to 1e6; the same bits everywhere.
///
/// The argument is reduced by Cody and Waite's method in three parts; the quadrant, below 2^20, has exact products with
/// the first two. Then Taylor polynomials up to x^17 and x^18, whose remainders are below 2^-54 on |x| <= pi/4.
#[inline(always)]
pub fn sin_cos_f64(x: f64) -> (f64, f64) {
    let quadrant = (x * std::f64::consts::FRAC_2_PI).round_ties_even();
    let mut r = x;
    for part in HALF_PI {
        r = (-quadrant).mul_add(part, r);
    }
    let square = r * r;
    let sin = alternating_series(r, square, 1);
    let cos = alternating_series(1.0, square, 0);
    match (quadrant as i64).rem_euclid(4) {
        0 => (sin, cos),
        1 => (cos, -sin),
        2 => (-sin, -cos),
        _ => (-cos, sin),
    }
}

/// `first * (1 - s/((k+1)(k+2)) + s^2/((k+1)..(k+4)) - ...)` with `s = square`, nine terms after the first.
#[inline(always)]
fn alternating_series(first: f64, square: f64, k: u32) -> f64 {
    let mut sum = 1.0;
    let mut n = k + 18;
    while n > k {
        let divisor = f64::from(n) * f64::from(n - 1);
        sum = 1.0 - square / divisor * sum;
        n -= 2;
    }
    first * sum
}

/// Sine and cosine of sixteen angles given as fractions of a turn: word `w` is the angle `2 pi w / 2^32`.
///
/// The reduction to the nearest quarter turn is done on the integer, so it is exact; errors are below 1.5e-7.
#[inline(always)]
pub fn sin_cos_of_turn<L: Lanes>(words: &[u32; LANES]) -> (L, L) {
    const RADIANS_PER_UNIT: f32 = std::f32::consts::TAU / (1u64 << 32) as f32;
    let mut rests = [0.0; LANES];
    // The quarter turn decides which of the two series is the sine, and both signs.
    let mut swaps = [0.0; LANES];
    let mut sin_signs = [0.0; LANES];
    let mut cos_signs = [0.0; LANES];
    for lane in 0..LANES {
        let shifted = words[lane].wrapping_add(1 << 29);
        let quarter = shifted >> 30;
        let rest = words[lane].wrapping_sub(quarter << 30) as i32;
        rests[lane] = rest as f32;
        swaps[lane] = (quarter & 1) as i32 as f32;
        sin_signs[lane] = 1.0 - (quarter & 2) as i32 as f32;
        cos_signs[lane] = 1.0 - ((quarter + 1) & 2) as i32 as f32;
    }
    let x = L::load(&rests) * L::splat(RADIANS_PER_UNIT);
    let square = x * x;
    // On |x| <= pi/4: sin(x) = x + x^3 P(x^2) within 2^-37, cos(x) = 1 - x^2/2 + x^4 Q(x^2) within 2^-33.
    let sin_tail = polynomial(square, [-0.166_666_67, 0.008_333_329, -0.000_198_393_13, 2.718_121_3e-6]);
    let cos_tail = polynomial(square, [0.041_666_646, -0.001_388_731_6, 2.443_315_7e-5]);
    let sin = (sin_tail * square).mul_add(x, x);
    let half = square.mul_add(L::splat(-0.5), L::splat(1.0));
    let cos = (cos_tail * square).mul_add(square, half);
    let swap = L::zero().less(L::load(&swaps));
    (L::select(swap, cos, sin) * L::load(&sin_signs), L::select(swap, sin, cos) * L::load(&cos_signs))
}
