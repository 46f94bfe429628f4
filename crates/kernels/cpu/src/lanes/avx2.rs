//! Lanes in two AVX2 registers.

use std::arch::x86_64::*;
use std::ops::{Add, Div, Mul, Neg, Sub};

use device::{Bf16, F16};

use super::scalar::SQRT_HALF_BITS;
use super::{LANES, Lanes};

/// Sixteen f32 in two registers: lanes 0..8 and 8..16. Made only inside functions compiled for AVX2 and FMA.
#[derive(Clone, Copy)]
pub struct Avx2Lanes(__m256, __m256);

macro_rules! operator {
    ($trait:ident, $method:ident, $intrinsic:ident) => {
        impl $trait for Avx2Lanes {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                // SAFETY: a value of this type exists only where AVX2 does.
                unsafe { Self($intrinsic(self.0, other.0), $intrinsic(self.1, other.1)) }
            }
        }
    };
}
operator!(Add, add, _mm256_add_ps);
operator!(Sub, sub, _mm256_sub_ps);
operator!(Mul, mul, _mm256_mul_ps);
operator!(Div, div, _mm256_div_ps);

impl Neg for Avx2Lanes {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        // SAFETY: a value of this type exists only where AVX2 does.
        unsafe {
            let sign_bit = _mm256_set1_ps(-0.0);
            Self(_mm256_xor_ps(self.0, sign_bit), _mm256_xor_ps(self.1, sign_bit))
        }
    }
}

/// Adds or compares the lanes by the tree 8, 4, 2, 1 with the operation of each width.
macro_rules! tree {
    ($lanes:expr, $eight:ident, $four:ident) => {{
        let eight = $eight($lanes.0, $lanes.1);
        let four = $four(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
        let two = $four(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32($four(two, _mm_movehdup_ps(two)))
    }};
}

/// `2^exponent` of integers held as f32.
#[inline(always)]
fn power_of_two(exponent: __m256) -> __m256 {
    // SAFETY: called only where AVX2 exists.
    unsafe {
        let biased = _mm256_add_epi32(_mm256_cvttps_epi32(exponent), _mm256_set1_epi32(127));
        _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
    }
}

#[inline(always)]
fn significand_and_exponent(value: __m256) -> (__m256, __m256) {
    // SAFETY: called only where AVX2 exists.
    unsafe {
        let bits = _mm256_castps_si256(value);
        let offset = _mm256_sub_epi32(bits, _mm256_set1_epi32(SQRT_HALF_BITS));
        let exponent = _mm256_srai_epi32::<23>(offset);
        let significand = _mm256_sub_epi32(bits, _mm256_slli_epi32::<23>(exponent));
        (_mm256_castsi256_ps(significand), _mm256_cvtepi32_ps(exponent))
    }
}

#[inline(always)]
fn copysign(magnitude: __m256, sign: __m256) -> __m256 {
    // SAFETY: called only where AVX2 exists.
    unsafe {
        let sign_bit = _mm256_set1_ps(-0.0);
        _mm256_or_ps(_mm256_andnot_ps(sign_bit, magnitude), _mm256_and_ps(sign_bit, sign))
    }
}

/// Eight numbers of bf16, widened.
#[inline(always)]
fn widened_bf16(from: *const Bf16) -> __m256 {
    // SAFETY: called only where AVX2 exists, with eight readable values.
    unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast())))) }
}

/// Bits of eight numbers of bf16, each in 32 bits.
#[inline(always)]
fn narrowed_bf16(value: __m256) -> __m256i {
    // SAFETY: called only where AVX2 exists.
    unsafe {
        let bits = _mm256_castps_si256(value);
        let high = _mm256_srli_epi32::<16>(bits);
        let half = _mm256_add_epi32(_mm256_and_si256(high, _mm256_set1_epi32(1)), _mm256_set1_epi32(0x7fff));
        let rounded = _mm256_srli_epi32::<16>(_mm256_add_epi32(bits, half));
        let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(value, value));
        _mm256_blendv_epi8(rounded, _mm256_or_si256(high, _mm256_set1_epi32(0x40)), nan)
    }
}

// The trait is used only through `run`, which asserts that the instructions are there; that holds for every
// block below, whose loads and stores go through references of the right length.
impl Lanes for Avx2Lanes {
    type Mask = (__m256, __m256);

    #[inline(always)]
    fn splat(value: f32) -> Self {
        // SAFETY: called only where AVX2 exists.
        let value = unsafe { _mm256_set1_ps(value) };
        Self(value, value)
    }

    #[inline(always)]
    fn load(from: &[f32; LANES]) -> Self {
        // SAFETY: called only where AVX2 exists; the reference covers sixteen values.
        unsafe { Self(_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from.as_ptr().add(LANES / 2))) }
    }

    #[inline(always)]
    fn store(self, into: &mut [f32; LANES]) {
        // SAFETY: called only where AVX2 exists; the reference covers sixteen values.
        unsafe {
            _mm256_storeu_ps(into.as_mut_ptr(), self.0);
            _mm256_storeu_ps(into.as_mut_ptr().add(LANES / 2), self.1);
        }
    }

    #[inline(always)]
    fn load_bf16(from: &[Bf16; LANES]) -> Self {
        Self(widened_bf16(from.as_ptr()), widened_bf16(from[LANES / 2..].as_ptr()))
    }

    #[inline(always)]
    fn store_bf16(self, into: &mut [Bf16; LANES]) {
        // SAFETY: called only where AVX2 exists; the reference covers sixteen values of two bytes.
        unsafe {
            // Packing follows halves of registers: 0..4, 8..12, 4..8, 12..16.
            let packed = _mm256_packus_epi32(narrowed_bf16(self.0), narrowed_bf16(self.1));
            _mm256_storeu_si256(into.as_mut_ptr().cast(), _mm256_permute4x64_epi64::<0b11_01_10_00>(packed));
        }
    }

    #[inline(always)]
    fn load_f16(from: &[F16; LANES]) -> Self {
        // SAFETY: called only where AVX2 and F16C exist; the reference covers sixteen values of two bytes.
        unsafe {
            let (low, high) = (from.as_ptr().cast::<__m128i>(), from[LANES / 2..].as_ptr().cast::<__m128i>());
            Self(_mm256_cvtph_ps(_mm_loadu_si128(low)), _mm256_cvtph_ps(_mm_loadu_si128(high)))
        }
    }

    #[inline(always)]
    fn store_f16(self, into: &mut [F16; LANES]) {
        const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT;
        // SAFETY: called only where AVX2 and F16C exist; the reference covers sixteen values of two bytes.
        unsafe {
            let (low, high) = (_mm256_cvtps_ph::<NEAREST>(self.0), _mm256_cvtps_ph::<NEAREST>(self.1));
            _mm_storeu_si128(into.as_mut_ptr().cast(), low);
            _mm_storeu_si128(into.as_mut_ptr().cast::<__m128i>().add(1), high);
        }
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, addend: Self) -> Self {
        // SAFETY: called only where AVX2 and FMA exist.
        unsafe { Self(_mm256_fmadd_ps(self.0, factor.0, addend.0), _mm256_fmadd_ps(self.1, factor.1, addend.1)) }
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        // SAFETY: called only where AVX2 exists.
        unsafe { Self(_mm256_sqrt_ps(self.0), _mm256_sqrt_ps(self.1)) }
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        // SAFETY: called only where AVX2 exists.
        unsafe { Self(_mm256_max_ps(self.0, other.0), _mm256_max_ps(self.1, other.1)) }
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        // SAFETY: called only where AVX2 exists.
        unsafe { Self(_mm256_min_ps(self.0, other.0), _mm256_min_ps(self.1, other.1)) }
    }

    #[inline(always)]
    fn abs(self) -> Self {
        self.copysign(Self::zero())
    }

    #[inline(always)]
    fn copysign(self, sign: Self) -> Self {
        Self(copysign(self.0, sign.0), copysign(self.1, sign.1))
    }

    #[inline(always)]
    fn round(self) -> Self {
        const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        // SAFETY: called only where AVX2 exists.
        unsafe { Self(_mm256_round_ps::<NEAREST>(self.0), _mm256_round_ps::<NEAREST>(self.1)) }
    }

    #[inline(always)]
    fn scaled(self, exponent: Self) -> Self {
        let exponent = exponent - Self::splat(1.0);
        let half = self * Self(power_of_two(exponent.0), power_of_two(exponent.1));
        half + half
    }

    #[inline(always)]
    fn significand_and_exponent(self) -> (Self, Self) {
        let (low, low_exponent) = significand_and_exponent(self.0);
        let (high, high_exponent) = significand_and_exponent(self.1);
        (Self(low, high), Self(low_exponent, high_exponent))
    }

    #[inline(always)]
    fn less(self, other: Self) -> Self::Mask {
        // SAFETY: called only where AVX2 exists.
        unsafe { (_mm256_cmp_ps::<_CMP_LT_OQ>(self.0, other.0), _mm256_cmp_ps::<_CMP_LT_OQ>(self.1, other.1)) }
    }

    #[inline(always)]
    fn select(mask: Self::Mask, if_true: Self, if_false: Self) -> Self {
        // SAFETY: called only where AVX2 exists.
        unsafe {
            Self(_mm256_blendv_ps(if_false.0, if_true.0, mask.0), _mm256_blendv_ps(if_false.1, if_true.1, mask.1))
        }
    }

    #[inline(always)]
    fn reduce_sum(self) -> f32 {
        // SAFETY: called only where AVX2 exists.
        unsafe { tree!(self, _mm256_add_ps, _mm_add_ps) }
    }

    #[inline(always)]
    fn reduce_max(self) -> f32 {
        // SAFETY: called only where AVX2 exists.
        unsafe { tree!(self, _mm256_max_ps, _mm_max_ps) }
    }
}
