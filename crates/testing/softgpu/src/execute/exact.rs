//! Numbers that are rounded once, in any direction.

use crate::code::Rounding;

/// A format of binary floating-point numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    pub exponent_bits: u32,
    pub fraction_bits: u32,
    /// The NaN that operations return.
    pub canonical_nan: u64,
}

/// Half precision.
pub const F16: Format = Format { exponent_bits: 5, fraction_bits: 10, canonical_nan: 0x7fff };
/// Brain float.
pub const BF16: Format = Format { exponent_bits: 8, fraction_bits: 7, canonical_nan: 0x7fff };
/// Single precision.
pub const F32: Format = Format { exponent_bits: 8, fraction_bits: 23, canonical_nan: 0x7fff_ffff };
/// Double precision.
pub const F64: Format = Format { exponent_bits: 11, fraction_bits: 52, canonical_nan: 0xfff8_0000_0000_0000 };

/// A number that is not a NaN: `magnitude * 2^exponent` and less than one unit of that more, if `is_more`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exact {
    /// The sign.
    pub is_negative: bool,
    /// Units.
    pub magnitude: u64,
    /// The unit's exponent.
    pub exponent: i32,
    /// Whether something is left over.
    pub is_more: bool,
}

impl Format {
    fn bias(self) -> i32 {
        (1 << (self.exponent_bits - 1)) - 1
    }

    /// The bits of infinity.
    pub fn infinity(self) -> u64 {
        ((1u64 << self.exponent_bits) - 1) << self.fraction_bits
    }

    /// The bit of the sign.
    pub fn sign(self) -> u64 {
        1 << (self.exponent_bits + self.fraction_bits)
    }

    /// Whether `bits` are a NaN.
    pub fn is_nan(self, bits: u64) -> bool {
        bits & (self.sign() - 1) > self.infinity()
    }

    /// Whether `bits` are neither infinite nor a NaN.
    pub fn is_finite(self, bits: u64) -> bool {
        bits & (self.sign() - 1) < self.infinity()
    }

    /// `bits`, or a zero of the same sign where they are subnormal.
    pub fn flushed(self, bits: u64) -> u64 {
        if bits & self.infinity() == 0 { bits & self.sign() } else { bits }
    }

    /// A finite number.
    pub fn exact(self, bits: u64) -> Exact {
        let field = (bits & self.infinity()) >> self.fraction_bits;
        let fraction = bits & ((1 << self.fraction_bits) - 1);
        let implicit = u64::from(field > 0) << self.fraction_bits;
        Exact {
            is_negative: bits & self.sign() != 0,
            magnitude: implicit | fraction,
            exponent: field.max(1) as i32 - self.bias() - self.fraction_bits as i32,
            is_more: false,
        }
    }

    /// The number as one of double precision, which has every number of the shorter formats.
    pub fn to_f64(self, bits: u64) -> f64 {
        let sign = if bits & self.sign() != 0 { -1.0 } else { 1.0 };
        if self.is_nan(bits) {
            return f64::NAN;
        }
        if !self.is_finite(bits) {
            return sign * f64::INFINITY;
        }
        let exact = self.exact(bits);
        sign * exact.magnitude as f64 * power_of_two(exact.exponent)
    }

    /// The bits of a number of double precision, rounded.
    pub fn of_f64(self, value: f64, rounding: Rounding) -> u64 {
        if value.is_nan() {
            return self.canonical_nan;
        }
        if value.is_infinite() {
            return self.infinity() | if value < 0.0 { self.sign() } else { 0 };
        }
        self.rounded(F64.exact(value.to_bits()), rounding)
    }

    /// The bits of a number, rounded.
    pub fn rounded(self, exact: Exact, rounding: Rounding) -> u64 {
        let sign = if exact.is_negative { self.sign() } else { 0 };
        if exact.magnitude == 0 {
            return sign;
        }
        let highest = exact.exponent + exact.magnitude.ilog2() as i32;
        let least = 1 - self.bias() - self.fraction_bits as i32;
        let last = (highest - self.fraction_bits as i32).max(least);
        let kept = shift_right(exact, last - exact.exponent, rounding);
        let bits = (((last - least) as u64) << self.fraction_bits).saturating_add(kept);
        if bits < self.infinity() {
            return sign | bits;
        }
        let is_toward_zero = match rounding {
            Rounding::Nearest | Rounding::NearestAway => false,
            Rounding::Zero => true,
            Rounding::Down => !exact.is_negative,
            Rounding::Up => exact.is_negative,
        };
        sign | if is_toward_zero { self.infinity() - 1 } else { self.infinity() }
    }
}

/// `2^exponent` as a product of two numbers that double precision has.
fn power_of_two(exponent: i32) -> f64 {
    let normal = exponent.clamp(-1022, 1023);
    let rest = exponent - normal;
    f64::from_bits(((normal + 1023) as u64) << 52) * if rest == 0 { 1.0 } else { f64::powi(2.0, rest) }
}

/// The magnitude without its last `places` bits, rounded.
pub fn shift_right(exact: Exact, places: i32, rounding: Rounding) -> u64 {
    if places <= 0 && !exact.is_more {
        return exact.magnitude << places.unsigned_abs();
    }
    // Twice the magnitude, and one more for what is left over: the lowest bit never decides a tie alone.
    let wide = u128::from(exact.magnitude) << 1 | u128::from(exact.is_more);
    let places = places.clamp(0, 100).unsigned_abs() + 1;
    let kept = (wide >> places) as u64;
    let rest = wide & ((1 << places) - 1);
    let half = 1u128 << (places - 1);
    let is_up = match rounding {
        Rounding::Nearest => rest > half || rest == half && kept & 1 == 1,
        Rounding::NearestAway => rest >= half,
        Rounding::Zero => false,
        Rounding::Down => exact.is_negative && rest > 0,
        Rounding::Up => !exact.is_negative && rest > 0,
    };
    kept + u64::from(is_up)
}

/// `value`, or its odd neighbour if the exact number is on the side of `rest`: whoever rounds it to at most 51 bits
/// rounds the exact number.
fn odd(value: f64, rest: f64) -> f64 {
    let bits = value.to_bits();
    if rest == 0.0 || !value.is_finite() || bits & 1 == 1 || rest.is_nan() {
        return value;
    }
    let grows = (rest > 0.0) == (value > 0.0);
    f64::from_bits(if grows { bits + 1 } else { bits - 1 })
}

/// The sum, rounded to odd.
pub fn odd_sum(a: f64, b: f64) -> f64 {
    let sum = a + b;
    // Knuth's sum of two: the rest is exact.
    let b_part = sum - a;
    let a_part = sum - b_part;
    odd(sum, (a - a_part) + (b - b_part))
}

/// The quotient of two numbers of single precision, rounded to odd.
pub fn odd_quotient(a: f64, b: f64) -> f64 {
    let quotient = a / b;
    let rest = (-quotient).mul_add(b, a);
    odd(quotient, if b < 0.0 { -rest } else { rest })
}

/// The square root of a number of single precision, rounded to odd.
pub fn odd_root(a: f64) -> f64 {
    let root = a.sqrt();
    odd(root, (-root).mul_add(root, a))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_survives_the_way_to_double_and_back() {
        for format in [F16, BF16] {
            for bits in (0..=0xffffu64).filter(|bits| !format.is_nan(*bits)) {
                assert_eq!(format.of_f64(format.to_f64(bits), Rounding::Nearest), bits, "{format:?} {bits:#x}");
            }
        }
    }

    #[test]
    fn directions_part_a_number_between_two() {
        let between = 1.0 + f64::powi(2.0, -12);
        let round = |value, rounding| F16.of_f64(value, rounding);
        assert_eq!(round(between, Rounding::Nearest), 0x3c00);
        assert_eq!(round(between, Rounding::Up), 0x3c01);
        assert_eq!(round(-between, Rounding::Up), 0xbc00);
        assert_eq!(round(-between, Rounding::Down), 0xbc01);
        assert_eq!(round(1.0 + f64::powi(2.0, -11), Rounding::Nearest), 0x3c00);
        assert_eq!(round(1.0 + f64::powi(2.0, -11), Rounding::NearestAway), 0x3c01);
        assert_eq!(round(1e9, Rounding::Zero), 0x7bff);
        assert_eq!(round(1e9, Rounding::Nearest), 0x7c00);
        assert_eq!(round(-1e9, Rounding::Up), 0xfbff);
        // Half of the least subnormal number goes to zero, as a tie; a little more goes up.
        assert_eq!(round(f64::powi(2.0, -25), Rounding::Nearest), 0);
        assert_eq!(round(f64::powi(2.0, -25) * 1.01, Rounding::Nearest), 1);
    }

    #[test]
    fn single_precision_rounds_as_the_processor_does() {
        let mut state = 1u64;
        for _ in 0..200_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let value = f64::from_bits(state ^ state >> 29);
            let expected = value as f32;
            if expected.is_nan() {
                continue;
            }
            assert_eq!(F32.of_f64(value, Rounding::Nearest), u64::from(expected.to_bits()), "{value:e}");
        }
    }
}
