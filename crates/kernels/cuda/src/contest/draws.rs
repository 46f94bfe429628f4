//! Random numbers of whole products, on which kernels are timed and their results are compared.

use std::sync::Arc;

use device::{Bf16, Element as _, F16};
use gpu::{DevicePointer, DriverError, Gpu, MatrixElement, StreamHandle};

use crate::owned::allocate_pinned;

/// Numbers that fill a matrix, again and again: a prime, so that no row of a matrix repeats another one at the same
/// columns.
const PATTERN: usize = 1_048_573;

/// A matrix of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filled {
    A = 1,
    B,
    /// The numbers that a result has before the product.
    D,
    Bias,
}

/// How the numbers of a product are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Draw {
    /// About normal, as initial weights and activations.
    Normal,
    /// All positive, so that sums grow.
    Positive,
    /// Exponents over most of the range of the type.
    Wide,
    /// Half of the terms are the same large one with a sign, and the others small. Where the large ones cancel, sums in
    /// another order, or of other groups, differ in their first digits.
    Cancelling,
    /// About normal, with zeros and a few large ones, as activations of trained models.
    Outlying,
}

impl Draw {
    /// Those in which other sums differ most first.
    pub const ALL: [Draw; 5] = [Draw::Cancelling, Draw::Wide, Draw::Normal, Draw::Positive, Draw::Outlying];

    fn number(self, random: &mut Random, filled: Filled, element: MatrixElement) -> f32 {
        match self {
            Draw::Normal => random.normal(),
            Draw::Positive => random.unit() + 0.001,
            Draw::Wide => {
                // Products of fp16 stay in the range of its results.
                let [least, most] = match element {
                    MatrixElement::F16 => [-14, 4],
                    MatrixElement::Bf16 | MatrixElement::F32 => [-24, 24],
                };
                let exponent = least + (random.next() % (most - least + 1) as u64) as i32;
                random.sign() * (1.0 + random.unit()) * (exponent as f32).exp2()
            }
            Draw::Cancelling => cancelling(random, filled, element),
            Draw::Outlying => match random.next() % 64 {
                0 => 100.0 * random.normal(),
                1..=8 => 0.0,
                _ => random.normal(),
            },
        }
    }

    fn bytes(self, filled: Filled, count: usize, element: MatrixElement) -> Vec<u8> {
        let mut random = Random((filled as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let numbers = std::iter::repeat_with(|| self.number(&mut random, filled, element)).take(count);
        match element {
            MatrixElement::F32 => numbers.flat_map(f32::to_le_bytes).collect(),
            MatrixElement::Bf16 => numbers.flat_map(|number| Bf16::narrow(number).0.to_le_bytes()).collect(),
            MatrixElement::F16 => numbers.flat_map(|number| F16::narrow(number).0.to_le_bytes()).collect(),
        }
    }

    /// Fills `bytes` from `start` on with the numbers of a matrix, as work of `stream`, and waits for it.
    pub fn fill(
        self,
        gpu: &Arc<dyn Gpu>,
        stream: StreamHandle,
        (start, bytes): (DevicePointer, usize),
        (filled, element): (Filled, MatrixElement),
    ) -> Result<(), DriverError> {
        let pattern = self.bytes(filled, (bytes / element.bytes()).min(PATTERN), element);
        repeat(gpu, stream, (start, bytes), &pattern)
    }
}

/// Fills memory with random numbers from 2^-7 to 2 in every type: products of zeros need less power and are faster.
pub(super) fn fill_to_time(
    gpu: &Arc<dyn Gpu>,
    stream: StreamHandle,
    (start, bytes): (DevicePointer, usize),
) -> Result<(), DriverError> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let words = std::iter::repeat_with(|| (random.next() as u16 & 0x83ff | 0x3c00).to_le_bytes());
    let pattern: Vec<u8> = words.take(PATTERN.min(bytes.div_ceil(2))).flatten().collect();
    repeat(gpu, stream, (start, bytes), &pattern)
}

/// Fills `bytes` from `start` on with `pattern`, again and again, as work of `stream`, and waits for it.
fn repeat(
    gpu: &Arc<dyn Gpu>,
    stream: StreamHandle,
    (start, bytes): (DevicePointer, usize),
    pattern: &[u8],
) -> Result<(), DriverError> {
    let mut done = pattern.len().min(bytes);
    if done == 0 {
        return Ok(());
    }
    let pinned = allocate_pinned(gpu, pattern.len())?;
    gpu.write_pinned(pinned.handle(), 0, pattern)?;
    gpu.upload(stream, start, pinned.handle(), 0, done)?;
    while done < bytes {
        let more = done.min(bytes - done);
        gpu.copy(stream, start.offset(done), start, more)?;
        done += more;
    }
    gpu.synchronize(stream)
}

/// Factors whose terms are large or 2^20 times smaller.
fn cancelling(random: &mut Random, filled: Filled, element: MatrixElement) -> f32 {
    let small = match element {
        MatrixElement::F16 => 1.0 / 256.0,
        MatrixElement::Bf16 | MatrixElement::F32 => 1.0,
    };
    match filled {
        Filled::A if random.next().is_multiple_of(2) => random.sign() * small * (1 << 20) as f32,
        Filled::B => random.sign(),
        Filled::A | Filled::D | Filled::Bias => random.normal() * small,
    }
}

/// Numbers of a xorshift generator.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
    }

    /// From 0 to 1, with the digits of single precision.
    fn unit(&mut self) -> f32 {
        (self.next() >> 8) as f32 / (1 << 24) as f32
    }

    fn sign(&mut self) -> f32 {
        if self.next().is_multiple_of(2) { 1.0 } else { -1.0 }
    }

    /// A sum of four, with a variance of 1.
    fn normal(&mut self) -> f32 {
        let sum: f32 = (0..4).map(|_| self.unit() - 0.5).sum();
        sum * 3.0f32.sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_have_the_exponents_signs_and_zeros_that_they_name() {
        let described = |draw: Draw| {
            let bytes = draw.bytes(Filled::A, 4096, MatrixElement::F32);
            let all: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
            let share =
                |holds: &dyn Fn(f32) -> bool| all.iter().filter(|number| holds(**number)).count() * 8 / all.len();
            let exponents = |number: f32| number != 0.0 && !(1e-4..=1e4).contains(&number.abs());
            format!(
                "{draw:?}: {}/8 negative, {}/8 of 64 or more, {}/8 tiny or huge",
                share(&|number| number < 0.0),
                share(&|number| number.abs() >= 64.0),
                share(&exponents)
            )
        };
        let expected = [
            "Cancelling: 3/8 negative, 4/8 of 64 or more, 4/8 tiny or huge",
            "Wide: 3/8 negative, 3/8 of 64 or more, 3/8 tiny or huge",
            "Normal: 3/8 negative, 0/8 of 64 or more, 0/8 tiny or huge",
            "Positive: 0/8 negative, 0/8 of 64 or more, 0/8 tiny or huge",
            "Outlying: 3/8 negative, 0/8 of 64 or more, 0/8 tiny or huge",
        ];
        assert_eq!(Draw::ALL.map(described), expected);
    }
}
