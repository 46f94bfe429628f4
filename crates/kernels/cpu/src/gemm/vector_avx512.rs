//! The [`Vector`] of AVX-512: sixteen `f32` in a 512-bit register.

use std::arch::x86_64::*;

use device::{Bf16, F16};

use super::vector::Vector;

/// One 512-bit register.
#[derive(Clone, Copy)]
pub(crate) struct Avx512Vector(__m512);

/// A mask whose first `lanes` lanes are set, for at most sixteen lanes.
#[inline(always)]
fn first(lanes: usize) -> __mmask16 {
    ((1u32 << lanes) - 1) as __mmask16
}

impl Avx512Vector {
    /// These bits, whatever they mean.
    ///
    /// # Safety
    /// The machine has AVX-512.
    #[inline(always)]
    pub(super) unsafe fn of_bits(bits: __m512i) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { _mm512_castsi512_ps(bits) })
    }

    /// A register of numbers.
    #[inline(always)]
    pub(super) fn of(numbers: __m512) -> Self {
        Self(numbers)
    }

    #[inline(always)]
    pub(super) fn numbers(self) -> __m512 {
        self.0
    }
}

impl Vector for Avx512Vector {
    const LANES: usize = 16;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller runs on a machine with AVX-512.
        Self(unsafe { _mm512_setzero_ps() })
    }

    #[inline(always)]
    unsafe fn splat(source: *const f32) -> Self {
        // SAFETY: the caller runs on a machine with AVX-512; the pointer names one readable value.
        Self(unsafe { _mm512_set1_ps(*source) })
    }

    #[inline(always)]
    unsafe fn load(source: *const f32) -> Self {
        // SAFETY: the caller runs on a machine with AVX-512; the pointer names sixteen readable values.
        Self(unsafe { _mm512_loadu_ps(source) })
    }

    #[inline(always)]
    unsafe fn load_first(source: *const f32, lanes: usize) -> Self {
        // SAFETY: the caller runs on a machine with AVX-512; masked lanes are not read, the others are readable.
        Self(unsafe { _mm512_maskz_loadu_ps(first(lanes), source) })
    }

    #[inline(always)]
    unsafe fn load_bf16(source: *const Bf16) -> Self {
        // SAFETY: the caller runs on a machine with AVX-512; the pointer names sixteen readable values of two bytes.
        unsafe {
            let halves = _mm512_cvtepu16_epi32(_mm256_loadu_si256(source.cast()));
            Self(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(halves)))
        }
    }

    #[inline(always)]
    unsafe fn load_f16(source: *const F16) -> Self {
        // SAFETY: the caller runs on a machine with AVX-512; the pointer names sixteen readable values of two bytes.
        Self(unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(source.cast())) })
    }

    #[inline(always)]
    unsafe fn store(self, target: *mut f32) {
        // SAFETY: the caller runs on a machine with AVX-512; the pointer names sixteen writable values.
        unsafe { _mm512_storeu_ps(target, self.0) }
    }

    #[inline(always)]
    unsafe fn store_first(self, target: *mut f32, lanes: usize) {
        // SAFETY: the caller runs on a machine with AVX-512; masked lanes are not written, the others are writable.
        unsafe { _mm512_mask_storeu_ps(target, first(lanes), self.0) }
    }

    #[inline(always)]
    unsafe fn multiply_add(self, factor: Self, addend: Self) -> Self {
        // SAFETY: the caller runs on a machine with AVX-512.
        Self(unsafe { _mm512_fmadd_ps(self.0, factor.0, addend.0) })
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: the caller runs on a machine with AVX-512.
        Self(unsafe { _mm512_add_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn prefetch(address: *const f32) {
        // SAFETY: a prefetch of any address is allowed.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }

    #[inline(always)]
    unsafe fn transpose(rows: &mut [Self]) {
        assert!(rows.len() == Self::LANES, "a square of sixteen registers");
        // SAFETY: the caller runs on a machine with AVX-512.
        unsafe {
            // Within each 128-bit quarter, fours of rows are transposed ...
            for four in 0..4 {
                let [a, b, c, d] = [0, 1, 2, 3].map(|row| rows[4 * four + row].0);
                let (ab_low, ab_high) = (_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
                let (cd_low, cd_high) = (_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
                rows[4 * four].0 = _mm512_shuffle_ps::<0x44>(ab_low, cd_low);
                rows[4 * four + 1].0 = _mm512_shuffle_ps::<0xee>(ab_low, cd_low);
                rows[4 * four + 2].0 = _mm512_shuffle_ps::<0x44>(ab_high, cd_high);
                rows[4 * four + 3].0 = _mm512_shuffle_ps::<0xee>(ab_high, cd_high);
            }
            // ... then the quarters are transposed as if each were one element.
            let mut transposed = [_mm512_setzero_ps(); 16];
            for column in 0..4 {
                let [a, b, c, d] = [0, 1, 2, 3].map(|four| rows[4 * four + column].0);
                let (ab_low, ab_high) = (_mm512_shuffle_f32x4::<0x44>(a, b), _mm512_shuffle_f32x4::<0xee>(a, b));
                let (cd_low, cd_high) = (_mm512_shuffle_f32x4::<0x44>(c, d), _mm512_shuffle_f32x4::<0xee>(c, d));
                transposed[column] = _mm512_shuffle_f32x4::<0x88>(ab_low, cd_low);
                transposed[column + 4] = _mm512_shuffle_f32x4::<0xdd>(ab_low, cd_low);
                transposed[column + 8] = _mm512_shuffle_f32x4::<0x88>(ab_high, cd_high);
                transposed[column + 12] = _mm512_shuffle_f32x4::<0xdd>(ab_high, cd_high);
            }
            for (row, vector) in rows.iter_mut().zip(transposed) {
                row.0 = vector;
            }
        }
    }
}
