//! Real numbers in memory: `f32`, and two narrow types that are widened to `f32` wherever something is computed with
//! them.
//!
//! A result is rounded once, when it is stored: to the nearest value, of two equally near ones to the even one.
//! Infinities and NaNs stay what they are; what is too large for a type becomes infinite.

use std::fmt::Debug;

use bytemuck::{Pod, Zeroable};

use crate::{Device, DeviceError, Dtype, Tensor};

/// A type of real numbers in memory.
pub trait Element: Pod + Debug + Send + Sync {
    /// Its name in a tensor.
    const DTYPE: Dtype;

    /// The same number in single precision: exact.
    fn widen(self) -> f32;

    /// The nearest number of this type, ties to even.
    fn narrow(value: f32) -> Self;
}

/// The upper half of an `f32`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct Bf16(pub u16);

/// IEEE half precision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct F16(pub u16);

const INFINITE: u32 = 0x7f80_0000;
const SIGN: u32 = 0x8000_0000;

impl Element for f32 {
    const DTYPE: Dtype = Dtype::F32;

    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }

    #[inline(always)]
    fn narrow(value: f32) -> f32 {
        value
    }
}

impl Element for Bf16 {
    const DTYPE: Dtype = Dtype::Bf16;

    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }

    #[inline(always)]
    fn narrow(value: f32) -> Bf16 {
        let bits = value.to_bits();
        if bits & !SIGN > INFINITE {
            // The lower half may hold all of a NaN's payload; the quiet bit keeps it from becoming infinite.
            return Bf16((bits >> 16) as u16 | 0x40);
        }
        let odd = bits >> 16 & 1;
        Bf16(((bits + 0x7fff + odd) >> 16) as u16)
    }
}

impl Element for F16 {
    const DTYPE: Dtype = Dtype::F16;

    #[inline(always)]
    fn widen(self) -> f32 {
        let (sign, magnitude) = (u32::from(self.0 & 0x8000) << 16, u32::from(self.0 & 0x7fff));
        if magnitude >= 0x7c00 {
            return f32::from_bits(sign | INFINITE | (magnitude & 0x3ff) << 13);
        }
        // With the exponent in place of that of an f32 the number is 2^112 times too small, subnormal ones too.
        let scale = f32::from_bits((127 + 112) << 23);
        f32::from_bits(sign | (f32::from_bits(magnitude << 13) * scale).to_bits())
    }

    #[inline(always)]
    fn narrow(value: f32) -> F16 {
        /// Halfway between the largest number, 65504, and the one that would follow.
        const TOO_LARGE: u32 = 0x477f_f000;
        /// 2^-14
        const SMALLEST_NORMAL: u32 = 0x3880_0000;
        let bits = value.to_bits();
        let (sign, magnitude) = ((bits >> 16) as u16 & 0x8000, bits & !SIGN);
        let narrowed = if magnitude > INFINITE {
            0x7e00 | (magnitude >> 13) as u16 & 0x1ff
        } else if magnitude >= TOO_LARGE {
            0x7c00
        } else if magnitude < SMALLEST_NORMAL {
            // The last place of numbers from 0.5 on is 2^-24, that of subnormal halves: the addition rounds.
            ((f32::from_bits(magnitude) + 0.5).to_bits() - 0.5f32.to_bits()) as u16
        } else {
            let odd = magnitude >> 13 & 1;
            (((magnitude + 0xfff + odd) >> 13) - (112 << 10)) as u16
        };
        F16(sign | narrowed)
    }
}

/// Replaces the numbers of a dense tensor by host values, each rounded once. Panics for types that hold no real
/// numbers.
///
/// # Errors
/// The device's.
pub fn write_floats(device: &dyn Device, tensor: Tensor, values: &[f32]) -> Result<(), DeviceError> {
    fn narrowed<E: Element>(device: &dyn Device, tensor: Tensor, values: &[f32]) -> Result<(), DeviceError> {
        let narrow: Vec<E> = values.iter().map(|&value| E::narrow(value)).collect();
        device.write(tensor, bytemuck::cast_slice(&narrow))
    }
    match tensor.dtype {
        Dtype::F32 => device.write(tensor, bytemuck::cast_slice(values)),
        Dtype::Bf16 => narrowed::<Bf16>(device, tensor, values),
        Dtype::F16 => narrowed::<F16>(device, tensor, values),
        Dtype::I32 | Dtype::I64 => panic!("{:?} holds no real numbers", tensor.dtype),
    }
}

/// The numbers of a dense tensor, widened. Panics for types that hold no real numbers.
///
/// # Errors
/// The device's.
pub fn read_floats(device: &dyn Device, tensor: Tensor) -> Result<Vec<f32>, DeviceError> {
    let mut bytes = vec![0; tensor.size_bytes()];
    device.read(tensor, &mut bytes)?;
    Ok(from_bytes(&bytes, tensor.dtype))
}

fn from_bytes(bytes: &[u8], dtype: Dtype) -> Vec<f32> {
    fn widened<E: Element>(bytes: &[u8]) -> Vec<f32> {
        bytes.chunks_exact(size_of::<E>()).map(|one| bytemuck::pod_read_unaligned::<E>(one).widen()).collect()
    }
    match dtype {
        Dtype::F32 => widened::<f32>(bytes),
        Dtype::Bf16 => widened::<Bf16>(bytes),
        Dtype::F16 => widened::<F16>(bytes),
        Dtype::I32 | Dtype::I64 => panic!("{dtype:?} holds no real numbers"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of a half's bits, from the definition of the format.
    fn half(bits: u16) -> f64 {
        let (sign, exponent, fraction) = (bits >> 15, i32::from(bits >> 10 & 31), f64::from(bits & 0x3ff));
        let magnitude = match exponent {
            0 => fraction * 2f64.powi(-24),
            31 if fraction == 0.0 => f64::INFINITY,
            31 => f64::NAN,
            _ => (1.0 + fraction / 1024.0) * 2f64.powi(exponent - 15),
        };
        if sign == 1 { -magnitude } else { magnitude }
    }

    #[test]
    fn every_narrow_number_is_kept() {
        for bits in 0..=u16::MAX {
            let (wide, exact) = (F16(bits).widen(), half(bits));
            assert!(f64::from(wide) == exact || wide.is_nan() && exact.is_nan(), "{bits:#x}: {wide} is not {exact}");
            assert_eq!(wide.is_sign_negative(), bits >> 15 == 1);
            for (narrowed, bits, is_nan) in [
                (F16::narrow(wide).0, bits, wide.is_nan()),
                (Bf16::narrow(Bf16(bits).widen()).0, bits, Bf16(bits).widen().is_nan()),
            ] {
                // A signalling NaN becomes a quiet one.
                assert!(narrowed == bits || is_nan && narrowed & 0x7c00 == bits & 0x7c00, "{bits:#x}: {narrowed:#x}");
            }
            assert_eq!(Bf16(bits).widen().is_nan(), Bf16::narrow(Bf16(bits).widen()).widen().is_nan());
            assert_eq!(wide.is_nan(), F16::narrow(wide).widen().is_nan());
        }
    }

    /// Between two neighbours the middle goes to the even one, and whatever is nearer to one goes there.
    fn rounds_to_nearest_even<E: Element>(bits: impl Fn(E) -> u16, of: impl Fn(u16) -> E, largest: u16) {
        for low in 0..largest {
            let (below, above) = (of(low).widen(), of(low + 1).widen());
            let middle = ((f64::from(below) + f64::from(above)) / 2.0) as f32;
            let even = if low % 2 == 0 { low } else { low + 1 };
            assert_eq!(bits(E::narrow(middle)), even, "middle of {below} and {above}");
            assert_eq!(bits(E::narrow(middle.next_down())), low, "below the middle of {below} and {above}");
            assert_eq!(bits(E::narrow(middle.next_up())), low + 1, "above the middle of {below} and {above}");
            assert_eq!(bits(E::narrow(-middle)), even | 0x8000);
        }
    }

    #[test]
    fn rounding_is_to_the_nearest_and_to_even() {
        rounds_to_nearest_even::<F16>(|half| half.0, F16, 0x7bff);
        // The middle of two numbers of bf16 is an f32, but below 2^-126 it need not be one.
        rounds_to_nearest_even::<Bf16>(|bf16| bf16.0, Bf16, 0x7f7f);
    }

    #[test]
    fn what_is_too_large_is_infinite_and_a_nan_stays_one() {
        assert_eq!(F16::narrow(65519.996).widen(), 65504.0);
        assert_eq!(F16::narrow(65520.0).widen(), f32::INFINITY);
        assert_eq!(F16::narrow(-1e9).widen(), f32::NEG_INFINITY);
        assert_eq!(Bf16::narrow(f32::MAX).widen(), f32::INFINITY);
        assert!(F16::narrow(f32::NAN).widen().is_nan() && Bf16::narrow(f32::from_bits(0x7f80_0001)).widen().is_nan());
    }
}
