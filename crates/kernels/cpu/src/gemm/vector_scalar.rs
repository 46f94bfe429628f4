//! The [`Vector`] of machines about which nothing is known: four plain `f32`.

use device::{Bf16, Element, F16};

use super::vector::Vector;

const LANES: usize = 4;

/// Four values that the compiler may keep where it likes.
#[derive(Clone, Copy)]
pub(crate) struct ScalarVector([f32; LANES]);

impl Vector for ScalarVector {
    const LANES: usize = LANES;

    #[inline(always)]
    unsafe fn zero() -> Self {
        Self([0.0; LANES])
    }

    #[inline(always)]
    unsafe fn splat(source: *const f32) -> Self {
        // SAFETY: the caller's pointer names one readable value.
        Self([unsafe { *source }; LANES])
    }

    #[inline(always)]
    unsafe fn load(source: *const f32) -> Self {
        // SAFETY: the caller's pointer names LANES readable values.
        Self(unsafe { source.cast::<[f32; LANES]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn load_first(source: *const f32, lanes: usize) -> Self {
        let mut values = [0.0; LANES];
        // SAFETY: the caller's pointer names `lanes` readable values.
        unsafe { std::ptr::copy_nonoverlapping(source, values.as_mut_ptr(), lanes.min(LANES)) };
        Self(values)
    }

    #[inline(always)]
    unsafe fn load_bf16(source: *const Bf16) -> Self {
        // SAFETY: the caller's pointer names LANES readable values.
        Self(unsafe { source.cast::<[Bf16; LANES]>().read_unaligned() }.map(Element::widen))
    }

    #[inline(always)]
    unsafe fn load_f16(source: *const F16) -> Self {
        // SAFETY: the caller's pointer names LANES readable values.
        Self(unsafe { source.cast::<[F16; LANES]>().read_unaligned() }.map(Element::widen))
    }

    #[inline(always)]
    unsafe fn store(self, target: *mut f32) {
        // SAFETY: the caller's pointer names LANES writable values.
        unsafe { target.cast::<[f32; LANES]>().write_unaligned(self.0) };
    }

    #[inline(always)]
    unsafe fn store_first(self, target: *mut f32, lanes: usize) {
        // SAFETY: the caller's pointer names `lanes` writable values.
        unsafe { std::ptr::copy_nonoverlapping(self.0.as_ptr(), target, lanes.min(LANES)) };
    }

    #[inline(always)]
    unsafe fn multiply_add(self, factor: Self, addend: Self) -> Self {
        Self(std::array::from_fn(|lane| self.0[lane].mul_add(factor.0[lane], addend.0[lane])))
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        Self(std::array::from_fn(|lane| self.0[lane] + other.0[lane]))
    }

    #[inline(always)]
    unsafe fn prefetch(_: *const f32) {}

    #[inline(always)]
    unsafe fn transpose(rows: &mut [Self]) {
        for i in 0..LANES {
            for j in 0..i {
                let below = rows[i].0[j];
                rows[i].0[j] = rows[j].0[i];
                rows[j].0[i] = below;
            }
        }
    }
}
