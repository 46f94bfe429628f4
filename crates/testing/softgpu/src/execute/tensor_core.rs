//! The sum of a block of products as tensor cores compute it. Written from the definition in docs/numerics.md, apart
//! from the kernels of crate `cpu`, so that each checks the other.

use std::ops::Range;

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

/// Numbers as signed significands and exponents: each exponent is that of the leading place, also where it is empty.
/// Arrays of each, so that vector instructions take eight at once.
#[derive(Clone, Copy, Debug)]
pub struct Factors<const N: usize> {
    significands: [i32; N],
    exponents: [i32; N],
    /// Whether any is a NaN or infinite; its significand means nothing.
    pub is_any_special: bool,
}

impl<const N: usize> Factors<N> {
    /// Reads factors of 16 bits.
    #[inline(always)]
    pub fn new(format: Format, bits: &[u32; N]) -> Factors<N> {
        let Format { exponent_bits, fraction_bits, .. } = format;
        let last_field = (1u32 << exponent_bits) - 1;
        let bias = (last_field >> 1) as i32;
        let mut factors = Factors { significands: [0; N], exponents: [0; N], is_any_special: false };
        for (index, bits) in bits.iter().enumerate() {
            let field = *bits >> fraction_bits & last_field;
            let implicit = u32::from(field > 0) << fraction_bits;
            let significand = (*bits & ((1 << fraction_bits) - 1) | implicit) as i32;
            let sign = -((*bits >> (exponent_bits + fraction_bits) & 1) as i32);
            factors.significands[index] = (significand ^ sign) - sign;
            factors.exponents[index] = if significand == 0 { NO_EXPONENT } else { field.max(1) as i32 - bias };
            factors.is_any_special |= field == last_field;
        }
        factors
    }
}

/// The format of a factor.
pub fn format_of(format: NumberFormat) -> Format {
    match format {
        NumberFormat::Bf16 | NumberFormat::Bf16x2 => BF16,
        NumberFormat::F16 | NumberFormat::F16x2 | NumberFormat::F32 | NumberFormat::F64 => F16,
    }
}

/// Columns of a product.
pub const COLUMNS: usize = 8;

/// One block for the steps `steps` of a row `a[step]` and all columns of `b[step][column]`, added to `sums`. Nothing is
/// a NaN or infinite.
#[inline(always)]
pub fn add_block(
    rule: Rule,
    format: Format,
    a: &Factors<16>,
    b: &[Factors<COLUMNS>; 16],
    steps: Range<usize>,
    sums: &mut [f32; COLUMNS],
) {
    let mut parts = [0i32; COLUMNS];
    let mut part_exponents = [NO_EXPONENT; COLUMNS];
    for column in 0..COLUMNS {
        let exact = F32.exact(u64::from(sums[column].to_bits()));
        let significand = exact.magnitude as i32;
        parts[column] = if exact.is_negative { -significand } else { significand };
        if significand != 0 {
            part_exponents[column] = exact.exponent + 23;
        }
    }
    let mut largest = part_exponents.map(|exponent| exponent.max(rule.least_exponent));
    for step in steps.clone() {
        for (largest, exponent) in largest.iter_mut().zip(&b[step].exponents) {
            *largest = (*largest).max(a.exponents[step].wrapping_add(*exponent));
        }
    }
    let places = (rule.fraction_bits - 2 * format.fraction_bits as i32) as u32;
    // A term is less than 2^27, so that half of the 16 terms of a block are summed in 32 bits. Nothing wraps; without
    // tests of overflow, vector instructions do it.
    let mut halves = [[0i32; COLUMNS]; 2];
    for step in steps {
        for column in 0..COLUMNS {
            let product = a.significands[step].wrapping_mul(b[step].significands[column]);
            let exponent = a.exponents[step].wrapping_add(b[step].exponents[column]);
            let term = aligned(product, places, largest[column].wrapping_sub(exponent));
            halves[step % 2][column] = halves[step % 2][column].wrapping_add(term);
        }
    }
    let part_places = (rule.fraction_bits - 23) as u32;
    for column in 0..COLUMNS {
        let part = aligned(parts[column], part_places, largest[column] - part_exponents[column]);
        let total = i64::from(part) + i64::from(halves[0][column]) + i64::from(halves[1][column]);
        sums[column] = truncated(total, largest[column] - rule.fraction_bits);
    }
}

/// `significand * 2^(places - distance)`, truncated toward zero.
#[inline(always)]
fn aligned(significand: i32, places: u32, distance: i32) -> i32 {
    let magnitude = (significand.unsigned_abs() << places) >> distance.clamp(0, 31);
    let sign = significand >> 31;
    (magnitude as i32 ^ sign).wrapping_sub(sign)
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
