//! Lanes in plain Rust: the reference of the other two, and what machines without AVX2 run.

use std::array::from_fn;
use std::ops::{Add, Div, Mul, Neg, Sub};

use device::{Bf16, Element, F16};

use super::{LANES, Lanes};

/// Sixteen f32 as an array.
#[derive(Clone, Copy)]
pub struct ScalarLanes([f32; LANES]);

macro_rules! operator {
    ($trait:ident, $method:ident, $symbol:tt) => {
        impl $trait for ScalarLanes {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                Self(from_fn(|lane| self.0[lane] $symbol other.0[lane]))
            }
        }
    };
}
operator!(Add, add, +);
operator!(Sub, sub, -);
operator!(Mul, mul, *);
operator!(Div, div, /);

impl Neg for ScalarLanes {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        Self(self.0.map(|value| -value))
    }
}

/// The bits of sqrt(1/2), where the significand range of `significand_and_exponent` starts.
pub(super) const SQRT_HALF_BITS: i32 = 0x3f35_04f3;

#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

impl Lanes for ScalarLanes {
    type Mask = [bool; LANES];

    #[inline(always)]
    fn splat(value: f32) -> Self {
        Self([value; LANES])
    }

    #[inline(always)]
    fn load(from: &[f32; LANES]) -> Self {
        Self(*from)
    }

    #[inline(always)]
    fn store(self, into: &mut [f32; LANES]) {
        *into = self.0;
    }

    #[inline(always)]
    fn load_bf16(from: &[Bf16; LANES]) -> Self {
        Self(from.map(Element::widen))
    }

    #[inline(always)]
    fn store_bf16(self, into: &mut [Bf16; LANES]) {
        *into = self.0.map(Element::narrow);
    }

    #[inline(always)]
    fn load_f16(from: &[F16; LANES]) -> Self {
        Self(from.map(Element::widen))
    }

    #[inline(always)]
    fn store_f16(self, into: &mut [F16; LANES]) {
        *into = self.0.map(Element::narrow);
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, addend: Self) -> Self {
        Self(from_fn(|lane| self.0[lane].mul_add(factor.0[lane], addend.0[lane])))
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        Self(self.0.map(f32::sqrt))
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        Self(from_fn(|lane| larger(self.0[lane], other.0[lane])))
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        Self(from_fn(|lane| if self.0[lane] < other.0[lane] { self.0[lane] } else { other.0[lane] }))
    }

    #[inline(always)]
    fn abs(self) -> Self {
        Self(self.0.map(f32::abs))
    }

    #[inline(always)]
    fn copysign(self, sign: Self) -> Self {
        Self(from_fn(|lane| self.0[lane].copysign(sign.0[lane])))
    }

    #[inline(always)]
    fn round(self) -> Self {
        Self(self.0.map(f32::round_ties_even))
    }

    #[inline(always)]
    fn scaled(self, exponent: Self) -> Self {
        // In two steps, because 2^128 is not an f32 but products just below it are.
        let power = exponent.0.map(|exponent| {
            let exponent = (exponent - 1.0) as i32;
            f32::from_bits((exponent.wrapping_add(127) as u32) << 23)
        });
        let half = self * Self(power);
        half + half
    }

    #[inline(always)]
    fn significand_and_exponent(self) -> (Self, Self) {
        let exponents = self.0.map(|value| (value.to_bits() as i32).wrapping_sub(SQRT_HALF_BITS) >> 23);
        let significands =
            from_fn(|lane| f32::from_bits(self.0[lane].to_bits().wrapping_sub((exponents[lane] as u32) << 23)));
        (Self(significands), Self(exponents.map(|e| e as f32)))
    }

    #[inline(always)]
    fn less(self, other: Self) -> Self::Mask {
        from_fn(|lane| self.0[lane] < other.0[lane])
    }

    #[inline(always)]
    fn select(mask: Self::Mask, if_true: Self, if_false: Self) -> Self {
        Self(from_fn(|lane| if mask[lane] { if_true.0[lane] } else { if_false.0[lane] }))
    }

    #[inline(always)]
    fn reduce_sum(self) -> f32 {
        tree(self.0, |a, b| a + b)
    }

    #[inline(always)]
    fn reduce_max(self) -> f32 {
        tree(self.0, larger)
    }
}

#[inline(always)]
fn tree(lanes: [f32; LANES], combine: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = lanes;
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] = combine(lanes[lane], lanes[lane + width]);
        }
        width /= 2;
    }
    lanes[0]
}
