//! The [`Vector`] of AVX2 with FMA: eight `f32` in a 256-bit register.

use std::arch::x86_64::*;

use device::{Bf16, F16};

use super::vector::Vector;

/// One 256-bit register.
#[derive(Clone, Copy)]
pub(crate) struct Avx2Vector(__m256);

/// A mask whose first `lanes` lanes are set.
#[inline(always)]
unsafe fn first(lanes: usize) -> __m256i {
    // SAFETY: the caller runs on a machine with AVX2.
    unsafe {
        let index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        _mm256_cmpgt_epi32(_mm256_set1_epi32(lanes as i32), index)
    }
}

impl Vector for Avx2Vector {
    const LANES: usize = 8;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller runs on a machine with AVX2.
        Self(unsafe { _mm256_setzero_ps() })
    }

    #[inline(always)]
    unsafe fn splat(source: *const f32) -> Self {
        // SAFETY: the caller runs on a machine with AVX2; the pointer names one readable value.
        Self(unsafe { _mm256_set1_ps(*source) })
    }

    #[inline(always)]
    unsafe fn load(source: *const f32) -> Self {
        // SAFETY: the caller runs on a machine with AVX2; the pointer names eight readable values.
        Self(unsafe { _mm256_loadu_ps(source) })
    }

    #[inline(always)]
    unsafe fn load_first(source: *const f32, lanes: usize) -> Self {
        // SAFETY: the caller runs on a machine with AVX2; masked lanes are not read, the others are readable.
        Self(unsafe { _mm256_maskload_ps(source, first(lanes)) })
    }

    #[inline(always)]
    unsafe fn load_bf16(source: *const Bf16) -> Self {
        // SAFETY: the caller runs on a machine with AVX2; the pointer names eight readable values of two bytes.
        unsafe {
            let halves = _mm256_cvtepu16_epi32(_mm_loadu_si128(source.cast()));
            Self(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(halves)))
        }
    }

    #[inline(always)]
    unsafe fn load_f16(source: *const F16) -> Self {
        // SAFETY: the caller runs on a machine with F16C; the pointer names eight readable values of two bytes.
        Self(unsafe { _mm256_cvtph_ps(_mm_loadu_si128(source.cast())) })
    }

    #[inline(always)]
    unsafe fn store(self, target: *mut f32) {
        // SAFETY: the caller runs on a machine with AVX2; the pointer names eight writable values.
        unsafe { _mm256_storeu_ps(target, self.0) }
    }

    #[inline(always)]
    unsafe fn store_first(self, target: *mut f32, lanes: usize) {
        // SAFETY: the caller runs on a machine with AVX2; masked lanes are not written, the others are writable.
        unsafe { _mm256_maskstore_ps(target, first(lanes), self.0) }
    }

    #[inline(always)]
    unsafe fn multiply_add(self, factor: Self, addend: Self) -> Self {
        // SAFETY: the caller runs on a machine with FMA.
        Self(unsafe { _mm256_fmadd_ps(self.0, factor.0, addend.0) })
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: the caller runs on a machine with AVX2.
        Self(unsafe { _mm256_add_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn prefetch(address: *const f32) {
        // SAFETY: a prefetch of any address is allowed.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }

    #[inline(always)]
    unsafe fn transpose(rows: &mut [Self]) {
        assert!(rows.len() == Self::LANES, "a square of eight registers");
        // SAFETY: the caller runs on a machine with AVX2.
        unsafe {
            // Within each 128-bit half, fours of rows are transposed ...
            let mut fours = [_mm256_setzero_ps(); 8];
            for four in 0..2 {
                let [a, b, c, d] = [0, 1, 2, 3].map(|row| rows[4 * four + row].0);
                let (ab_low, ab_high) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
                let (cd_low, cd_high) = (_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
                fours[4 * four] = _mm256_shuffle_ps::<0x44>(ab_low, cd_low);
                fours[4 * four + 1] = _mm256_shuffle_ps::<0xee>(ab_low, cd_low);
                fours[4 * four + 2] = _mm256_shuffle_ps::<0x44>(ab_high, cd_high);
                fours[4 * four + 3] = _mm256_shuffle_ps::<0xee>(ab_high, cd_high);
            }
            // ... then the halves are joined.
            for column in 0..4 {
                let (low, high) = (fours[column], fours[4 + column]);
                rows[column].0 = _mm256_permute2f128_ps::<0x20>(low, high);
                rows[column + 4].0 = _mm256_permute2f128_ps::<0x31>(low, high);
            }
        }
    }
}
