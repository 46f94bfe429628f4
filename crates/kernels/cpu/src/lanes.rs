//! Sixteen f32 at once: one source of every kernel, the same bits on AVX-512, AVX2 and plain Rust.
//!
//! A kernel is written once, generic over [`Lanes`], and compiled three times by [`run`]. Every operation of
//! the trait is IEEE-exact (correctly rounded, or exact), a fused multiply-add only where
//! [`Lanes::mul_add`] says so, and sums over lanes follow one fixed tree. So the three versions agree to
//! the bit; only the payload of a NaN may differ.
//!
//! A kernel is a struct of its arguments, one file per operation: `lanes::run(instruction_set, NormForward { .. })`.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod row;
mod scalar;
mod stored;

use std::ops::{Add, Div, Mul, Neg, Sub};

use device::{Bf16, F16};

#[cfg(target_arch = "x86_64")]
use avx2::Avx2Lanes;
#[cfg(target_arch = "x86_64")]
use avx512::Avx512Lanes;
pub use row::{Block, OnTile, for_each_block, for_each_tile, row_sum};
use scalar::ScalarLanes;
pub use stored::Stored;

use crate::instruction_set::InstructionSet;

/// How many f32 a block has, on every instruction set.
pub const LANES: usize = 16;

/// A block of sixteen f32 in registers. Operators act lane by lane and round once each.
///
/// The methods are always inlined, so they take the vector instructions of the function around them: they
/// belong inside [`Kernel::run`] and nowhere else. The three types that have them are private: they reach a kernel only
/// through [`run`], which has asked the machine first.
pub trait Lanes:
    Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self> + Neg<Output = Self>
{
    /// One truth value per lane.
    type Mask: Copy;

    /// `value` in every lane.
    fn splat(value: f32) -> Self;
    /// Reads sixteen values.
    fn load(from: &[f32; LANES]) -> Self;
    /// Writes sixteen values.
    fn store(self, into: &mut [f32; LANES]);
    /// Reads sixteen values and widens them.
    fn load_bf16(from: &[Bf16; LANES]) -> Self;
    /// Writes sixteen values, each rounded once.
    fn store_bf16(self, into: &mut [Bf16; LANES]);
    /// Reads sixteen values and widens them.
    fn load_f16(from: &[F16; LANES]) -> Self;
    /// Writes sixteen values, each rounded once.
    fn store_f16(self, into: &mut [F16; LANES]);
    /// `self * factor + addend`, rounded once.
    fn mul_add(self, factor: Self, addend: Self) -> Self;
    /// Square root, correctly rounded.
    fn sqrt(self) -> Self;
    /// `self > other ? self : other`, so `other` where one of them is NaN.
    fn max(self, other: Self) -> Self;
    /// `self < other ? self : other`, so `other` where one of them is NaN.
    fn min(self, other: Self) -> Self;
    /// Magnitude.
    fn abs(self) -> Self;
    /// The magnitude of `self` with the sign of `sign`.
    fn copysign(self, sign: Self) -> Self;
    /// Nearest integer, ties to even.
    fn round(self) -> Self;
    /// `self * 2^exponent`, exact or infinite, for integers up to 128, lanes of `self` in `[1/2, 2)` and products from
    /// `2^-125` on; NaN of two NaNs; anything else gives any value.
    fn scaled(self, exponent: Self) -> Self;
    /// `(m, e)` with `self = m * 2^e` and `m` in `[sqrt(1/2), sqrt(2))`, for positive normal finite lanes;
    /// anything else gives any value.
    fn significand_and_exponent(self) -> (Self, Self);
    /// `self < other`, false where one of them is NaN.
    fn less(self, other: Self) -> Self::Mask;
    /// `if_true` where the mask is set, else `if_false`.
    fn select(mask: Self::Mask, if_true: Self, if_false: Self) -> Self;
    /// The sum of the lanes by the tree 8, 4, 2, 1.
    fn reduce_sum(self) -> f32;
    /// The maximum of the lanes by the same tree.
    fn reduce_max(self) -> f32;

    /// All lanes zero.
    #[inline(always)]
    fn zero() -> Self {
        Self::splat(0.0)
    }

    /// Reads fewer than sixteen values and fills the other lanes with `fill`.
    #[inline(always)]
    fn load_partial(from: &[f32], fill: f32) -> Self {
        let mut buffer = [fill; LANES];
        buffer[..from.len()].copy_from_slice(from);
        Self::load(&buffer)
    }

    /// Writes the first `into.len()` lanes, fewer than sixteen.
    #[inline(always)]
    fn store_partial(self, into: &mut [f32]) {
        let mut buffer = [0.0; LANES];
        self.store(&mut buffer);
        let count = into.len();
        into.copy_from_slice(&buffer[..count]);
    }
}

/// The body of a kernel with its arguments, generic over the lanes.
///
/// Implement `run` with `#[inline(always)]`: [`run`] compiles it once per instruction set.
pub trait Kernel {
    /// The result of the kernel.
    type Output;
    /// Does the work.
    fn run<L: Lanes>(self) -> Self::Output;
}

/// Runs `kernel` with the instructions of `instruction_set`.
///
/// Panics when this machine does not have them.
#[inline]
pub fn run<K: Kernel>(instruction_set: InstructionSet, kernel: K) -> K::Output {
    assert!(instruction_set.is_available(), "this machine does not have the instructions of {instruction_set:?}");
    match instruction_set {
        // SAFETY: the instructions are there, as just asserted.
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Amx | InstructionSet::Avx512 => unsafe { run_avx512(kernel) },
        // SAFETY: the instructions are there, as just asserted.
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx2 => unsafe { run_avx2(kernel) },
        // Elsewhere the others are never available.
        #[cfg(not(target_arch = "x86_64"))]
        InstructionSet::Amx | InstructionSet::Avx512 | InstructionSet::Avx2 => kernel.run::<ScalarLanes>(),
        InstructionSet::Scalar => kernel.run::<ScalarLanes>(),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn run_avx512<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<Avx512Lanes>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn run_avx2<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<Avx2Lanes>()
}

#[cfg(test)]
mod tests;
