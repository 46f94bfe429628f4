//! A block of steps of one row and sixteen columns in two registers of AVX2; AVX-512 runs it, too.

use std::arch::x86_64::*;

use super::pack::NO_EXPONENT;
use super::rule::BlockRule;
use super::tile::{BITS_OF_F32, Block, USUAL};
use crate::lanes::LANES;

/// Columns of a register.
const HALF: usize = LANES / 2;

impl<const BLOCK: usize> Block<'_, BLOCK> {
    /// Returns the same as [`Block::add_usual`].
    ///
    /// # Safety
    /// The machine has AVX2.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn add_usual_avx2(&self, rule: BlockRule, sums: &mut [f32; LANES]) -> bool {
        // SAFETY: each access is to eight numbers of `sums` or of a step of `b`, or to sixteen of its exponents;
        // conversions are of numbers below 2^31.
        unsafe {
            let mut of_products = _mm256_set1_epi16(i16::MIN);
            for (a, b) in self.a_exponents.iter().zip(self.b_exponents) {
                let exponents = _mm256_add_epi16(_mm256_set1_epi16(*a), _mm256_loadu_si256(b.as_ptr().cast()));
                of_products = _mm256_max_epi16(of_products, exponents);
            }
            let of_products = [
                _mm256_cvtepi16_epi32(_mm256_castsi256_si128(of_products)),
                _mm256_cvtepi16_epi32(_mm256_extracti128_si256::<1>(of_products)),
            ];
            let old = [_mm256_loadu_ps(sums.as_ptr()), _mm256_loadu_ps(sums.as_ptr().add(HALF))];
            let largest = [largest(old[0], of_products[0]), largest(old[1], of_products[1])];
            if !(is_usual(largest[0]) & is_usual(largest[1])) {
                return false;
            }
            let one = _mm256_set1_epi32(rule.fraction_bits + 127);
            let scales = largest.map(|e| _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_sub_epi32(one, e))));
            let mut units = [_mm256_setzero_si256(); 2];
            for (a, b) in self.a.iter().zip(self.b) {
                let a = _mm256_set1_ps(*a);
                for half in 0..2 {
                    let product = _mm256_mul_ps(a, _mm256_loadu_ps(b.as_ptr().add(half * HALF)));
                    let whole = _mm256_cvttps_epi32(_mm256_mul_ps(product, scales[half]));
                    units[half] = _mm256_add_epi32(units[half], whole);
                }
            }
            for half in 0..2 {
                let own = _mm256_cvttps_epi32(_mm256_mul_ps(old[half], scales[half]));
                let exponents = _mm256_sub_epi32(largest[half], _mm256_set1_epi32(rule.fraction_bits - 1023));
                let quarter = |units: __m128i, own: __m128i, exponents: __m128i| {
                    let exact = _mm256_add_pd(_mm256_cvtepi32_pd(units), _mm256_cvtepi32_pd(own));
                    let kept = _mm256_and_pd(exact, _mm256_castsi256_pd(_mm256_set1_epi64x(BITS_OF_F32 as i64)));
                    let unit = _mm256_slli_epi64::<52>(_mm256_cvtepi32_epi64(exponents));
                    _mm256_cvtpd_ps(_mm256_mul_pd(kept, _mm256_castsi256_pd(unit)))
                };
                let (units, low) = (units[half], _mm256_castsi256_si128);
                let first = quarter(low(units), low(own), low(exponents));
                let second = quarter(
                    _mm256_extracti128_si256::<1>(units),
                    _mm256_extracti128_si256::<1>(own),
                    _mm256_extracti128_si256::<1>(exponents),
                );
                _mm256_storeu_ps(sums.as_mut_ptr().add(half * HALF), _mm256_set_m128(second, first));
            }
            true
        }
    }
}

/// The largest exponents of sums and products, 0 where all terms are zeros.
#[inline]
#[target_feature(enable = "avx2")]
fn largest(sums: __m256, of_products: __m256i) -> __m256i {
    let magnitude = _mm256_and_si256(_mm256_castps_si256(sums), _mm256_set1_epi32(i32::MAX));
    let field = _mm256_max_epi32(_mm256_srli_epi32::<23>(magnitude), _mm256_set1_epi32(1));
    let exponent = _mm256_sub_epi32(field, _mm256_set1_epi32(127));
    let is_zero = _mm256_cmpeq_epi32(magnitude, _mm256_setzero_si256());
    let of_sums = _mm256_blendv_epi8(exponent, _mm256_set1_epi32(2 * NO_EXPONENT), is_zero);
    let of_all = _mm256_max_epi32(of_sums, of_products);
    _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(NO_EXPONENT), of_all), of_all)
}

/// Whether all are in [`USUAL`].
#[inline]
#[target_feature(enable = "avx2")]
fn is_usual(largest: __m256i) -> bool {
    let above = _mm256_cmpgt_epi32(largest, _mm256_set1_epi32(*USUAL.end()));
    let below = _mm256_cmpgt_epi32(_mm256_set1_epi32(*USUAL.start()), largest);
    _mm256_movemask_epi8(_mm256_or_si256(above, below)) == 0
}
