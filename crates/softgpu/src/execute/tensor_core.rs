//! The sum of a block of products as tensor cores compute it. Written from the definition in docs/numerics.md, apart
//! from the kernels of crate `cpu`, so that each checks the other.

use super::exact::{BF16, F16, F32, Format};
use crate::code::NumberFormat;

/// A rule of tensor cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Products that are added at once.
    pub steps: usize,
    /// Bits that a term keeps below the largest exponent.
    pub fraction_bits: i32,
    /// The least value of the largest exponent.
    pub least_exponent: i32,
}

impl Rule {
    /// Hopper and Blackwell.
    pub const HOPPER: Rule = Rule { steps: 16, fraction_bits: 25, least_exponent: -133 };
    /// Ampere and Ada.
    pub const AMPERE: Rule = Rule { steps: 8, fraction_bits: 24, least_exponent: -132 };

    /// The rule of a compute capability's major number.
    pub fn of(major: u32) -> Rule {
        if major < 9 { Rule::AMPERE } else { Rule::HOPPER }
    }
}

/// The exponent of a zero: lower than that of every other number.
const NO_EXPONENT: i32 = -10_000;

/// A number as a signed significand and an exponent; `exponent` is that of the leading place, also where it is empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct Factor {
    significand: i32,
    exponent: i32,
    is_special: bool,
}

/// The format of a factor.
pub fn format_of(format: NumberFormat) -> Format {
    match format {
        NumberFormat::Bf16 | NumberFormat::Bf16x2 => BF16,
        NumberFormat::F16 | NumberFormat::F16x2 | NumberFormat::F32 | NumberFormat::F64 => F16,
    }
}

/// Reads a factor of 16 bits.
pub fn factor(format: Format, bits: u32) -> Factor {
    let bits = u64::from(bits);
    if !format.is_finite(bits) {
        return Factor { is_special: true, ..Factor::default() };
    }
    let exact = format.exact(bits);
    let significand = exact.magnitude as i32;
    Factor {
        significand: if exact.is_negative { -significand } else { significand },
        exponent: if significand == 0 { NO_EXPONENT } else { exact.exponent + format.fraction_bits as i32 },
        is_special: false,
    }
}

/// Columns of a product.
pub const COLUMNS: usize = 8;

/// One block for a row of `a` and all columns of `b[step][column]`, added to `sums`. Nothing is a NaN or infinite.
#[inline(always)]
pub fn add_block(rule: Rule, format: Format, a: &[Factor], b: &[[Factor; COLUMNS]], sums: &mut [f32; COLUMNS]) {
    let mut largest = [rule.least_exponent; COLUMNS];
    let parts: [Factor; COLUMNS] = std::array::from_fn(|column| {
        let exact = F32.exact(u64::from(sums[column].to_bits()));
        let significand = exact.magnitude as i32;
        let exponent = if significand == 0 { NO_EXPONENT } else { exact.exponent + 23 };
        Factor { significand: if exact.is_negative { -significand } else { significand }, exponent, is_special: false }
    });
    for column in 0..COLUMNS {
        largest[column] = largest[column].max(parts[column].exponent);
        for (a, b) in a.iter().zip(b) {
            largest[column] = largest[column].max(a.exponent + b[column].exponent);
        }
    }
    let aligned = |significand: i32, exponent: i32, places: i32, largest: i32| -> i64 {
        let distance = (largest - exponent).clamp(0, 31);
        let magnitude = (significand.unsigned_abs() << places) >> distance;
        if significand < 0 { -i64::from(magnitude) } else { i64::from(magnitude) }
    };
    let places = rule.fraction_bits - 2 * format.fraction_bits as i32;
    let mut totals = [0i64; COLUMNS];
    for column in 0..COLUMNS {
        let Factor { significand, exponent, .. } = parts[column];
        totals[column] = aligned(significand, exponent, rule.fraction_bits - 23, largest[column]);
        for (a, b) in a.iter().zip(b) {
            let product = a.significand * b[column].significand;
            totals[column] += aligned(product, a.exponent + b[column].exponent, places, largest[column]);
        }
    }
    for column in 0..COLUMNS {
        sums[column] = truncated(totals[column], largest[column] - rule.fraction_bits);
    }
}

/// `units * 2^exponent` in single precision, truncated toward zero; never -0.
#[inline(always)]
fn truncated(units: i64, exponent: i32) -> f32 {
    if units == 0 {
        return 0.0;
    }
    let magnitude = units.unsigned_abs();
    let highest = exponent + magnitude.ilog2() as i32;
    if highest >= 128 {
        return if units < 0 { f32::NEG_INFINITY } else { f32::INFINITY };
    }
    let last = (highest - 23).max(-149);
    let kept = match last - exponent {
        right @ 0..64 => magnitude >> right,
        64.. => 0,
        left => magnitude << -left,
    };
    let bits = (((last + 149) as u32) << 23) + kept as u32;
    if units < 0 && bits > 0 { -f32::from_bits(bits) } else { f32::from_bits(bits) }
}

/// The result of a block that has a NaN or an infinity: of one column, by the bits of all factors.
pub fn special_sum(format: Format, pairs: &[(u32, u32)], sum: f32) -> Option<f32> {
    let products = pairs.iter().map(|(a, b)| {
        let (a, b) = (u64::from(*a), u64::from(*b));
        let is_infinite = |bits: u64| !format.is_finite(bits) && !format.is_nan(bits);
        if format.is_nan(a) || format.is_nan(b) {
            return f32::NAN;
        }
        if !is_infinite(a) && !is_infinite(b) {
            // The sign and size of a finite product do not matter.
            return 0.0;
        }
        (format.to_f64(a) * format.to_f64(b)) as f32
    });
    let total = products.fold(if sum.is_finite() { 0.0 } else { sum }, |total, product| total + product);
    match total {
        total if total.is_nan() => Some(f32::from_bits(0x7fff_ffff)),
        total if total.is_infinite() => Some(total),
        _ => None,
    }
}

/// Whether any factor is a NaN or infinite.
pub fn is_any_special(factors: &[Factor]) -> bool {
    factors.iter().any(|factor| factor.is_special)
}
