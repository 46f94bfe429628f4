//! Random blocks of a tensor core: products of matrices of every kind of number, hashed.

use config::Format;
use device::{ArenaSize, Device, DeviceError, Dtype, Numerics, Op, Orientation, Stream, Tensor, Write};
use mesh::Rank;
use philox::philox4x32_10;
use train::{Engine, RankEngine};
use xxhash_rust::xxh3::Xxh3Default;

use crate::conformance::hashed_device::Hashes;

/// Rows of both operands.
const ROWS: usize = 2048;

/// Steps of a product: blocks that begin from zero, and blocks that begin from a sum.
const STEPS: usize = 64;

/// Distributions of factors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Factors {
    /// Near 1.
    Plain,
    /// Every finite bit pattern.
    AnyFinite,
    /// Mostly near 1, others far smaller.
    Wide,
    /// Subnormal numbers, and products near the smallest sums.
    Small,
    /// A NaN or an infinity in 64.
    Specials,
    /// A zero in 3, of either sign.
    Zeros,
    /// Powers of two that cancel.
    Cancelling,
}

const ALL: [Factors; 7] = [
    Factors::Plain,
    Factors::AnyFinite,
    Factors::Wide,
    Factors::Small,
    Factors::Specials,
    Factors::Zeros,
    Factors::Cancelling,
];

/// Exponent and fraction bits of a narrow format, with its type in memory.
#[derive(Clone, Copy)]
struct Narrow {
    dtype: Dtype,
    exponent_bits: u32,
    fraction_bits: u32,
}

impl Narrow {
    /// # Errors
    /// Single precision has no blocks.
    fn of(format: Format) -> Result<Narrow, DeviceError> {
        match format {
            Format::Bf16 => Ok(Narrow { dtype: Dtype::Bf16, exponent_bits: 8, fraction_bits: 7 }),
            Format::Fp16 => Ok(Narrow { dtype: Dtype::F16, exponent_bits: 5, fraction_bits: 10 }),
            Format::Fp32 => Err(DeviceError::Shape { op: "mat_mul", what: "blocks need bf16 or fp16".into() }),
        }
    }

    /// The bits of a factor, from two random words.
    fn bits(self, factors: Factors, [word, place]: [u32; 2]) -> u16 {
        let largest = (1 << self.exponent_bits) - 1;
        let bias = largest >> 1;
        let random_fraction = word & ((1 << self.fraction_bits) - 1);
        let sign = word >> 31 << 15;
        let small = if self.exponent_bits == 8 { 40 + place % 30 } else { place % 8 };
        let (exponent, fraction) = match factors {
            Factors::Plain => (bias - 3 + place % 6, random_fraction),
            Factors::AnyFinite => (place % largest, random_fraction),
            Factors::Wide => {
                (bias.saturating_sub(place % 16 + if place.is_multiple_of(8) { 20 } else { 0 }), random_fraction)
            }
            Factors::Small => (if place.is_multiple_of(4) { 0 } else { small }, random_fraction),
            Factors::Specials if place.is_multiple_of(64) => (largest, random_fraction * (word >> 20 & 1)),
            Factors::Specials => (place % largest, random_fraction),
            Factors::Zeros if place.is_multiple_of(3) => (0, 0),
            Factors::Zeros => (bias, random_fraction),
            Factors::Cancelling => (bias - 1 + place % 2, 0),
        };
        (sign | exponent << self.fraction_bits | fraction) as u16
    }
}

/// A hash of each product's bits; NaNs count as one NaN.
///
/// # Errors
/// The engine's and the device's.
pub fn hashes(engine: &dyn Engine, numerics: Numerics) -> Result<Hashes, DeviceError> {
    let narrow = Narrow::of(numerics.stored)?;
    let operand_bytes = ROWS * STEPS * narrow.dtype.size_bytes();
    let [a, b] = [0, operand_bytes].map(|offset| Tensor::new(offset, ROWS, STEPS, narrow.dtype));
    let out = Tensor::new(2 * operand_bytes, ROWS, ROWS, Dtype::F32);
    let RankEngine { device, .. } =
        engine.open(Rank(0), ArenaSize::of_device(2 * operand_bytes + out.size_bytes()), numerics)?;
    let of = |(number, factors): (usize, &Factors)| {
        for (which, operand) in [a, b].into_iter().enumerate() {
            device.write(operand, &random(narrow, *factors, [number, which]))?;
        }
        let op = Op::MatMul { orientation: Orientation::Nt, a, b, bias: None, out, write: Write::Assign };
        device.submit(Stream::Compute, &op)?;
        Ok((format!("{factors:?}"), hash(&*device, out)?))
    };
    ALL.iter().enumerate().map(of).collect()
}

/// The bytes of an operand.
fn random(narrow: Narrow, factors: Factors, [number, which]: [usize; 2]) -> Vec<u8> {
    let key = [number as u32, which as u32];
    let words = (0..(ROWS * STEPS / 2) as u32).flat_map(|index| {
        let words = philox4x32_10([index, 0, 0, 0x626c_6b73], key);
        [[words[0], words[1]], [words[2], words[3]]]
    });
    words.flat_map(|pair| narrow.bits(factors, pair).to_le_bytes()).collect()
}

fn hash(device: &dyn Device, out: Tensor) -> Result<u64, DeviceError> {
    let mut bytes = vec![0; out.size_bytes()];
    device.read(out, &mut bytes)?;
    let mut hash = Xxh3Default::new();
    let (words, _) = bytes.as_chunks::<4>();
    for word in words {
        let number = f32::from_le_bytes(*word);
        let bits = if number.is_nan() { f32::NAN.to_bits() } else { number.to_bits() };
        hash.update(&bits.to_le_bytes());
    }
    Ok(hash.digest())
}
