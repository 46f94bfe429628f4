//! Operations of a vector register for GEMM, so that each kernel is written once for three instruction sets.

use device::{Bf16, Element, F16};

/// A register of `LANES` `f32` values.
///
/// Every method is inlined into a caller that was compiled for the instruction set; calling one elsewhere, on a machine
/// that lacks the instructions, is undefined behaviour. Hence all are unsafe with the same two conditions: the machine
/// has the instructions, and the lanes that a pointer method names are inside memory that may be read or written.
pub(crate) trait Vector: Copy {
    /// Values per register.
    const LANES: usize;

    /// All lanes zero.
    unsafe fn zero() -> Self;

    /// All lanes equal to the value at `source`.
    unsafe fn splat(source: *const f32) -> Self;

    /// `LANES` consecutive values.
    unsafe fn load(source: *const f32) -> Self;

    /// The first `lanes` of `LANES` consecutive values; the other lanes are zero and not read.
    unsafe fn load_first(source: *const f32, lanes: usize) -> Self;

    /// `LANES` consecutive values, widened.
    unsafe fn load_bf16(source: *const Bf16) -> Self;

    /// `LANES` consecutive values, widened.
    unsafe fn load_f16(source: *const F16) -> Self;

    /// Writes all lanes.
    unsafe fn store(self, target: *mut f32);

    /// Writes the first `lanes` lanes and nothing else.
    unsafe fn store_first(self, target: *mut f32, lanes: usize);

    /// `self * factor + addend`, rounded once.
    unsafe fn multiply_add(self, factor: Self, addend: Self) -> Self;

    /// `self + other`.
    unsafe fn add(self, other: Self) -> Self;

    /// Asks for the cache line of an address that will soon be read and written; any address is allowed.
    unsafe fn prefetch(address: *const f32);

    /// Transposes a square of registers: lane `j` of `rows[i]` becomes lane `i` of `rows[j]`, for `rows` of `LANES`
    /// registers.
    unsafe fn transpose(rows: &mut [Self]);
}

/// A type of real numbers that operands hold: registers hold them widened.
pub(crate) trait Widened: Element {
    /// `V::LANES` consecutive values.
    ///
    /// # Safety
    /// As for [`Vector::load`].
    unsafe fn load<V: Vector>(source: *const Self) -> V;

    /// The first `lanes` of `V::LANES` consecutive values; the other lanes are zero and not read.
    ///
    /// # Safety
    /// As for [`Vector::load_first`].
    unsafe fn load_first<V: Vector>(source: *const Self, lanes: usize) -> V;
}

impl Widened for f32 {
    #[inline(always)]
    unsafe fn load<V: Vector>(source: *const f32) -> V {
        // SAFETY: the caller's promise.
        unsafe { V::load(source) }
    }

    #[inline(always)]
    unsafe fn load_first<V: Vector>(source: *const f32, lanes: usize) -> V {
        // SAFETY: the caller's promise.
        unsafe { V::load_first(source, lanes) }
    }
}

/// The most lanes of a register.
const MAX_LANES: usize = 16;

macro_rules! widened {
    ($type:ty, $load:ident) => {
        impl Widened for $type {
            #[inline(always)]
            unsafe fn load<V: Vector>(source: *const $type) -> V {
                // SAFETY: the caller's promise.
                unsafe { V::$load(source) }
            }

            #[inline(always)]
            unsafe fn load_first<V: Vector>(source: *const $type, lanes: usize) -> V {
                let mut values = [<$type>::default(); MAX_LANES];
                // SAFETY: the caller promises `lanes` readable values, no more than a register has; a whole register is
                // read from the copy.
                unsafe {
                    std::ptr::copy_nonoverlapping(source, values.as_mut_ptr(), lanes.min(V::LANES));
                    V::$load(values.as_ptr())
                }
            }
        }
    };
}
widened!(Bf16, load_bf16);
widened!(F16, load_f16);
