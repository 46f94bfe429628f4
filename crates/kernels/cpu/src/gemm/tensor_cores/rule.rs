//! The sum of a block of products on a tensor core, in whole numbers. Every kernel is held to it.

use config::Products;
use device::{Bf16, F16};

/// How a tensor core adds a block of products to the sum so far. [`BlockRule::add`] is the definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRule {
    /// Products that are added at once.
    pub steps: usize,
    /// Bits that a term keeps below the largest exponent.
    pub fraction_bits: i32,
    /// The largest exponent counts as this where it is less.
    pub least_exponent: i32,
}

/// The one NaN that tensor cores make.
const CANONICAL_NAN: u32 = 0x7fff_ffff;

/// Exponent and fraction bits of a format.
struct Fields {
    exponent_bits: u32,
    fraction_bits: u32,
}

const F32: Fields = Fields { exponent_bits: 8, fraction_bits: 23 };
const BF16: Fields = Fields { exponent_bits: 8, fraction_bits: 7 };
const F16_FIELDS: Fields = Fields { exponent_bits: 5, fraction_bits: 10 };

/// A factor, a product or a sum as a tensor core reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Term {
    /// A number.
    Finite(Parts),
    /// Infinity.
    Infinite {
        /// Its sign.
        is_negative: bool,
    },
    /// Not a number.
    NaN,
}

/// `magnitude * 2^(exponent - fraction_bits)`, with its sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    is_negative: bool,
    magnitude: u64,
    /// Of a number as it is stored, the least one of its format where it is subnormal; of a product the sum of its
    /// factors'. The magnitude of a product may reach twice the next power of two: it is not normalised.
    exponent: i32,
    fraction_bits: i32,
}

impl From<Bf16> for Term {
    fn from(number: Bf16) -> Term {
        Term::of(u32::from(number.0), BF16)
    }
}

impl From<F16> for Term {
    fn from(number: F16) -> Term {
        Term::of(u32::from(number.0), F16_FIELDS)
    }
}

impl From<f32> for Term {
    fn from(number: f32) -> Term {
        Term::of(number.to_bits(), F32)
    }
}

impl Term {
    fn of(bits: u32, Fields { exponent_bits, fraction_bits }: Fields) -> Term {
        let is_negative = bits >> (exponent_bits + fraction_bits) == 1;
        let largest_field = (1 << exponent_bits) - 1;
        let field = bits >> fraction_bits & largest_field;
        let fraction = bits & ((1 << fraction_bits) - 1);
        if field == largest_field {
            return if fraction == 0 { Term::Infinite { is_negative } } else { Term::NaN };
        }
        let implicit = if field == 0 { 0 } else { 1 << fraction_bits };
        let bias = (largest_field >> 1) as i32;
        Term::Finite(Parts {
            is_negative,
            magnitude: u64::from(implicit | fraction),
            exponent: field.max(1) as i32 - bias,
            fraction_bits: fraction_bits as i32,
        })
    }

    /// The exact product.
    fn times(self, other: Term) -> Term {
        match (self, other) {
            (Term::NaN, _) | (_, Term::NaN) => Term::NaN,
            (Term::Finite(a), Term::Finite(b)) => Term::Finite(Parts {
                is_negative: a.is_negative != b.is_negative,
                magnitude: a.magnitude * b.magnitude,
                exponent: a.exponent + b.exponent,
                fraction_bits: a.fraction_bits + b.fraction_bits,
            }),
            (Term::Infinite { is_negative }, Term::Infinite { is_negative: other }) => {
                Term::Infinite { is_negative: is_negative != other }
            }
            (Term::Infinite { is_negative }, Term::Finite(number))
            | (Term::Finite(number), Term::Infinite { is_negative }) => match number.magnitude {
                0 => Term::NaN,
                _ => Term::Infinite { is_negative: is_negative != number.is_negative },
            },
        }
    }
}

impl Parts {
    /// Whole multiples of `2^unit`; what is less is cut off.
    fn in_units(self, unit: i32) -> i64 {
        let units = shifted(self.magnitude, self.exponent - self.fraction_bits - unit) as i64;
        if self.is_negative { -units } else { units }
    }
}

/// `magnitude * 2^exponent` without what is less than one.
fn shifted(magnitude: u64, exponent: i32) -> u64 {
    match exponent {
        0.. => magnitude << exponent,
        _ => magnitude.checked_shr(exponent.unsigned_abs()).unwrap_or(0),
    }
}

/// `units * 2^exponent` in single precision: cut off, infinite where it is 2^128 or more, and never -0.
fn cut_off(units: i64, exponent: i32) -> f32 {
    let magnitude = units.unsigned_abs();
    let Some(highest) = magnitude.checked_ilog2() else { return 0.0 };
    let exponent_of_sum = exponent + highest as i32;
    let last_place = (exponent_of_sum - 23).max(-149);
    let kept = shifted(magnitude, exponent - last_place) as u32;
    let size = match exponent_of_sum {
        128.. => f32::INFINITY,
        -126..128 => f32::from_bits((((exponent_of_sum + 127) as u32) << 23) | kept & ((1 << 23) - 1)),
        _ => f32::from_bits(kept),
    };
    if units < 0 && size > 0.0 { -size } else { size }
}

impl BlockRule {
    /// NVIDIA's Hopper and Blackwell.
    pub const BLOCKS16: BlockRule = BlockRule { steps: 16, fraction_bits: 25, least_exponent: -133 };
    /// NVIDIA's Ampere and Ada.
    pub const BLOCKS8: BlockRule = BlockRule { steps: 8, fraction_bits: 24, least_exponent: -132 };

    /// The rule of an order of products; `None` where that has no blocks.
    pub fn of(products: Products) -> Option<BlockRule> {
        match products {
            Products::Chained | Products::Pairs | Products::Device => None,
            Products::Blocks16 => Some(BlockRule::BLOCKS16),
            Products::Blocks8 => Some(BlockRule::BLOCKS8),
        }
    }

    /// The sum of `sum` and the products of at most `steps` pairs of factors; fewer count as if zeros followed.
    pub fn add(self, sum: f32, factors: &[[Term; 2]]) -> f32 {
        assert!(factors.len() <= self.steps, "{} products in a block of {}", factors.len(), self.steps);
        let terms = || factors.iter().map(|[a, b]| a.times(*b)).chain([Term::from(sum)]);
        let has = |wanted: Term| terms().any(|term| term == wanted);
        let infinities = [false, true].map(|is_negative| has(Term::Infinite { is_negative }));
        match (has(Term::NaN), infinities) {
            (true, _) | (false, [true, true]) => return f32::from_bits(CANONICAL_NAN),
            (false, [true, false]) => return f32::INFINITY,
            (false, [false, true]) => return f32::NEG_INFINITY,
            (false, [false, false]) => {}
        }
        // Zeros have no exponent, and add nothing.
        let numbers = || {
            terms().filter_map(|term| match term {
                Term::Finite(parts) if parts.magnitude > 0 => Some(parts),
                Term::Finite(_) | Term::Infinite { .. } | Term::NaN => None,
            })
        };
        let unit = numbers().map(|parts| parts.exponent).fold(self.least_exponent, i32::max) - self.fraction_bits;
        cut_off(numbers().map(|parts| parts.in_units(unit)).sum(), unit)
    }
}
