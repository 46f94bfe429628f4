//! Lanes in one AVX-512 register.

use std::arch::x86_64::*;
use std::ops::{Add, Div, Mul, Neg, Sub};

use device::{Bf16, F16};

use super::scalar::SQRT_HALF_BITS;
use super::{LANES, Lanes};

/// Sixteen f32 in one register. Made only inside functions compiled for AVX-512 (F, BW, DQ, VL).
#[derive(Clone, Copy)]
pub struct Avx512Lanes(__m512);

macro_rules! operator {
    ($trait:ident, $method:ident, $intrinsic:ident) => {
        impl $trait for Avx512Lanes {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                // SAFETY: a value of this type exists only where AVX-512 does.
                Self(unsafe { $intrinsic(self.0, other.0) })
            }
        }
    };
}
operator!(Add, add, _mm512_add_ps);
operator!(Sub, sub, _mm512_sub_ps);
operator!(Mul, mul, _mm512_mul_ps);
operator!(Div, div, _mm512_div_ps);

impl Neg for Avx512Lanes {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        // SAFETY: a value of this type exists only where AVX-512 does.
        Self(unsafe { _mm512_xor_ps(self.0, _mm512_set1_ps(-0.0)) })
    }
}

/// The lanes below `count`, at most sixteen.
#[inline(always)]
fn first(count: usize) -> __mmask16 {
    debug_assert!(count <= LANES);
    ((1u32 << count) - 1) as __mmask16
}

/// Adds or compares the lanes by the tree 8, 4, 2, 1 with the operation of each width.
macro_rules! tree {
    ($lanes:expr, $eight:ident, $four:ident) => {{
        let eight = $eight(_mm512_castps512_ps256($lanes), _mm512_extractf32x8_ps::<1>($lanes));
        let four = $four(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
        let two = $four(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32($four(two, _mm_movehdup_ps(two)))
    }};
}

// The trait is used only through `run`, which asserts that the instructions are there; that holds for every
// block below, whose loads and stores go through references of the right length.
impl Lanes for Avx512Lanes {
    type Mask = __mmask16;

    #[inline(always)]
    fn splat(value: f32) -> Self {
        // SAFETY: called only where AVX-512 exists.
        Self(unsafe { _mm512_set1_ps(value) })
    }

    #[inline(always)]
    fn load(from: &[f32; LANES]) -> Self {
        // SAFETY: called only where AVX-512 exists; the reference covers sixteen values.
        Self(unsafe { _mm512_loadu_ps(from.as_ptr()) })
    }

    #[inline(always)]
    fn store(self, into: &mut [f32; LANES]) {
        // SAFETY: called only where AVX-512 exists; the reference covers sixteen values.
        unsafe { _mm512_storeu_ps(into.as_mut_ptr(), self.0) }
    }

    #[inline(always)]
    fn load_partial(from: &[f32], fill: f32) -> Self {
        // SAFETY: called only where AVX-512 exists; masked-off lanes are not read.
        Self(unsafe { _mm512_mask_loadu_ps(_mm512_set1_ps(fill), first(from.len()), from.as_ptr()) })
    }

    #[inline(always)]
    fn store_partial(self, into: &mut [f32]) {
        // SAFETY: called only where AVX-512 exists; masked-off lanes are not written.
        unsafe { _mm512_mask_storeu_ps(into.as_mut_ptr(), first(into.len()), self.0) }
    }

    #[inline(always)]
    fn load_bf16(from: &[Bf16; LANES]) -> Self {
        // SAFETY: called only where AVX-512 exists; the reference covers sixteen values of two bytes.
        unsafe {
            let halves = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.as_ptr().cast()));
            Self(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(halves)))
        }
    }

    #[inline(always)]
    fn store_bf16(self, into: &mut [Bf16; LANES]) {
        // SAFETY: called only where AVX-512 exists; the reference covers sixteen values of two bytes.
        unsafe {
            let bits = _mm512_castps_si512(self.0);
            let high = _mm512_srli_epi32::<16>(bits);
            let half = _mm512_add_epi32(_mm512_and_si512(high, _mm512_set1_epi32(1)), _mm512_set1_epi32(0x7fff));
            let rounded = _mm512_srli_epi32::<16>(_mm512_add_epi32(bits, half));
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(self.0, self.0);
            let quiet = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
            let narrow = _mm512_cvtepi32_epi16(_mm512_mask_blend_epi32(nan, rounded, quiet));
            _mm256_storeu_si256(into.as_mut_ptr().cast(), narrow);
        }
    }

    #[inline(always)]
    fn load_f16(from: &[F16; LANES]) -> Self {
        // SAFETY: called only where AVX-512 exists; the reference covers sixteen values of two bytes.
        Self(unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.as_ptr().cast())) })
    }

    #[inline(always)]
    fn store_f16(self, into: &mut [F16; LANES]) {
        const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        // SAFETY: called only where AVX-512 exists; the reference covers sixteen values of two bytes.
        unsafe { _mm256_storeu_si256(into.as_mut_ptr().cast(), _mm512_cvtps_ph::<NEAREST>(self.0)) }
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, addend: Self) -> Self {
        // SAFETY: called only where AVX-512 exists.
        Self(unsafe { _mm512_fmadd_ps(self.0, factor.0, addend.0) })
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        // SAFETY: called only where AVX-512 exists.
        Self(unsafe { _mm512_sqrt_ps(self.0) })
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        // SAFETY: called only where AVX-512 exists.
        Self(unsafe { _mm512_max_ps(self.0, other.0) })
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        // SAFETY: called only where AVX-512 exists.
        Self(unsafe { _mm512_min_ps(self.0, other.0) })
    }

    #[inline(always)]
    fn abs(self) -> Self {
        // SAFETY: called only where AVX-512 exists.
        Self(unsafe { _mm512_abs_ps(self.0) })
    }

    #[inline(always)]
    fn copysign(self, sign: Self) -> Self {
        // SAFETY: called only where AVX-512 exists.
        unsafe {
            let sign_bit = _mm512_set1_ps(-0.0);
            Self(_mm512_or_ps(_mm512_andnot_ps(sign_bit, self.0), _mm512_and_ps(sign_bit, sign.0)))
        }
    }

    #[inline(always)]
    fn round(self) -> Self {
        // SAFETY: called only where AVX-512 exists.
        Self(unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(self.0) })
    }

    #[inline(always)]
    fn scaled(self, exponent: Self) -> Self {
        // SAFETY: called only where AVX-512 exists.
        Self(unsafe { _mm512_scalef_ps(self.0, exponent.0) })
    }

    #[inline(always)]
    fn significand_and_exponent(self) -> (Self, Self) {
        // SAFETY: called only where AVX-512 exists.
        unsafe {
            let bits = _mm512_castps_si512(self.0);
            let offset = _mm512_sub_epi32(bits, _mm512_set1_epi32(SQRT_HALF_BITS));
            let exponent = _mm512_srai_epi32::<23>(offset);
            let significand = _mm512_sub_epi32(bits, _mm512_slli_epi32::<23>(exponent));
            (Self(_mm512_castsi512_ps(significand)), Self(_mm512_cvtepi32_ps(exponent)))
        }
    }

    #[inline(always)]
    fn less(self, other: Self) -> Self::Mask {
        // SAFETY: called only where AVX-512 exists.
        unsafe { _mm512_cmp_ps_mask::<_CMP_LT_OQ>(self.0, other.0) }
    }

    #[inline(always)]
    fn select(mask: Self::Mask, if_true: Self, if_false: Self) -> Self {
        // SAFETY: called only where AVX-512 exists.
        Self(unsafe { _mm512_mask_blend_ps(mask, if_false.0, if_true.0) })
    }

    #[inline(always)]
    fn reduce_sum(self) -> f32 {
        // SAFETY: called only where AVX-512 exists.
        unsafe { tree!(self.0, _mm256_add_ps, _mm_add_ps) }
    }

    #[inline(always)]
    fn reduce_max(self) -> f32 {
        // SAFETY: called only where AVX-512 exists.
        unsafe { tree!(self.0, _mm256_max_ps, _mm_max_ps) }
    }
}
