//! Types of real numbers that kernels read and write, always through lanes of `f32`.

use device::{Bf16, Element, F16};

use super::{LANES, Lanes};

/// A type of real numbers in memory as kernels see it: widened by the load, rounded once by the store.
pub trait Stored: Element {
    /// Reads sixteen values.
    fn load<L: Lanes>(from: &[Self; LANES]) -> L;
    /// Writes sixteen values.
    fn store<L: Lanes>(lanes: L, into: &mut [Self; LANES]);
    /// Reads fewer than sixteen values and fills the other lanes with `fill`.
    fn load_partial<L: Lanes>(from: &[Self], fill: f32) -> L;
    /// Writes the first `into.len()` lanes, fewer than sixteen.
    fn store_partial<L: Lanes>(lanes: L, into: &mut [Self]);
}

impl Stored for f32 {
    #[inline(always)]
    fn load<L: Lanes>(from: &[f32; LANES]) -> L {
        L::load(from)
    }

    #[inline(always)]
    fn store<L: Lanes>(lanes: L, into: &mut [f32; LANES]) {
        lanes.store(into);
    }

    #[inline(always)]
    fn load_partial<L: Lanes>(from: &[f32], fill: f32) -> L {
        L::load_partial(from, fill)
    }

    #[inline(always)]
    fn store_partial<L: Lanes>(lanes: L, into: &mut [f32]) {
        lanes.store_partial(into);
    }
}

macro_rules! narrow {
    ($type:ty, $load:ident, $store:ident) => {
        impl Stored for $type {
            #[inline(always)]
            fn load<L: Lanes>(from: &[$type; LANES]) -> L {
                L::$load(from)
            }

            #[inline(always)]
            fn store<L: Lanes>(lanes: L, into: &mut [$type; LANES]) {
                lanes.$store(into);
            }

            #[inline(always)]
            fn load_partial<L: Lanes>(from: &[$type], fill: f32) -> L {
                let mut buffer = [<$type>::narrow(fill); LANES];
                buffer[..from.len()].copy_from_slice(from);
                L::$load(&buffer)
            }

            #[inline(always)]
            fn store_partial<L: Lanes>(lanes: L, into: &mut [$type]) {
                let mut buffer = [<$type>::default(); LANES];
                lanes.$store(&mut buffer);
                let count = into.len();
                into.copy_from_slice(&buffer[..count]);
            }
        }
    };
}
narrow!(Bf16, load_bf16, store_bf16);
narrow!(F16, load_f16, store_f16);
