//! The data types in which a run stores and sends values. Arithmetic is always in single precision.
//!
//! | value | stored as |
//! |---|---|
//! | parameters as layers read them, and on their way between ranks | [`Precision::stored`] |
//! | activations and their gradients, kept, temporary and on their way between ranks | [`Precision::stored`] |
//! | statistics of norms, log-sum-exps, logits, losses | [`Format::Fp32`] |
//! | gradients of parameters: accumulation and sums over ranks | [`GradientSums`] |
//! | the weights that the optimizer updates ([`Masters`]), its moments | [`Format::Fp32`] |
//!
//! A bf16 or fp16 value is widened where it is read and rounded once where it is stored; sums over ranks of such values
//! are taken in single precision and rounded once.

use crate::data_spec::DeviceChoice;
use crate::names::names;

/// How a real number is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// IEEE single precision.
    Fp32,
    /// Its upper half: 8 bits of precision, the same range.
    Bf16,
    /// IEEE half precision: 11 bits of precision, up to 65504.
    Fp16,
}

names! { Format: "fp32" = Fp32, "bf16" = Bf16, "fp16" = Fp16 }

impl Format {
    /// Bytes of one number.
    pub fn size_bytes(self) -> usize {
        match self {
            Format::Fp32 => 4,
            Format::Bf16 | Format::Fp16 => 2,
        }
    }

    /// The largest relative error of rounding to the nearest number, where it is normal.
    pub fn unit_roundoff(self) -> f64 {
        match self {
            Format::Fp32 => 1.0 / f64::from(1 << 24),
            Format::Bf16 => 1.0 / 256.0,
            Format::Fp16 => 1.0 / 2048.0,
        }
    }
}

/// The numbers of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Precision {
    /// Everything in single precision, multiplied in this order.
    Fp32(Products),
    /// Parameters and activations in bf16, multiplied in this order.
    Bf16(Products),
    /// Parameters and activations in fp16, multiplied in this order, gradients kept in its range by a factor of the
    /// loss.
    Fp16(Products, LossScaling),
}

/// The order in which the terms of a matrix product are added. But for `Device`, the order belongs to the run, not to
/// the machine: each has the same bits on every processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Products {
    /// One term after the other, with fused multiply-adds of single precision.
    Chained,
    /// As AMX adds products of bf16: 32 terms in two chains, of those with even and with odd numbers. In a run in bf16
    /// an operand of single precision is rounded to bf16 first; in a run in single precision each number is the sum of
    /// three of bf16, of which the six largest products are added.
    Pairs,
    /// As tensor cores of NVIDIA's Hopper and Blackwell add products of bf16 and fp16: 16 terms and the sum so far,
    /// cut off 25 bits below the largest exponent, added exactly, and cut off to single precision. An operand of
    /// single precision is rounded to the narrow type first.
    Blocks16,
    /// As those of Ampere and Ada do: 8 terms, 24 bits.
    Blocks8,
    /// As the library of the GPU's maker adds them: an order that belongs to the GPU, the library and the place of a
    /// product, no less exact than blocks of 8 terms. Only products; all else is as with the blocks of the GPU.
    Device,
}

names! { Products: "chained" = Chained, "pairs" = Pairs, "blocks16" = Blocks16, "blocks8" = Blocks8, "device" = Device }

impl Products {
    /// Rows of a product over tokens that are summed in blocks before they are added to others.
    pub const PIECE: usize = 8192;

    /// Terms of a block that is cut off as a whole, at least; `None` where each sum is rounded to nearest.
    pub fn block(self) -> Option<usize> {
        match self {
            Products::Chained | Products::Pairs => None,
            Products::Blocks16 => Some(16),
            Products::Blocks8 | Products::Device => Some(8),
        }
    }

    /// Blocks that a sum over `tokens` is cut off in, one after the other, at most; `None` as for [`Products::block`].
    pub fn blocks_over(self, tokens: usize) -> Option<usize> {
        let longest = match self {
            Products::Chained | Products::Pairs | Products::Blocks16 | Products::Blocks8 => Products::PIECE,
            Products::Device => usize::MAX,
        };
        self.block().map(|block| tokens.min(longest).div_ceil(block))
    }

    /// Tokens whose logits are in memory at once. A gradient of the output matrix is one sum per chunk of tokens, and
    /// chunks are added in single precision. With `Chained` and `Pairs` a chunk is the block of steps that a product
    /// sums from zero anyway. With the orders of GPUs, larger chunks read and write the matrix and its gradient less
    /// often.
    pub fn head_tokens(self) -> usize {
        match self {
            Products::Chained | Products::Pairs => 256,
            Products::Blocks16 | Products::Blocks8 | Products::Device => 2048,
        }
    }

    /// Whether some device of a choice has the order. Devices themselves refuse the others; messages offer these.
    pub fn is_of(self, device: DeviceChoice) -> bool {
        match (self, device) {
            (Products::Chained | Products::Blocks16 | Products::Blocks8, DeviceChoice::Cpu | DeviceChoice::Cuda)
            | (Products::Pairs, DeviceChoice::Cpu)
            | (Products::Device, DeviceChoice::Cuda) => true,
            (Products::Pairs, DeviceChoice::Cuda) | (Products::Device, DeviceChoice::Cpu) => false,
        }
    }

    /// Whether the order is defined for a run that stores its numbers so. AMX multiplies bf16, and what single
    /// precision is the sum of; tensor cores multiply bf16 and fp16, and single precision only after it has lost 13
    /// bits.
    pub fn multiplies(self, stored: Format) -> bool {
        match (self, stored) {
            (Products::Chained, Format::Fp32 | Format::Bf16 | Format::Fp16)
            | (Products::Pairs, Format::Fp32 | Format::Bf16)
            | (Products::Blocks16 | Products::Blocks8 | Products::Device, Format::Bf16 | Format::Fp16) => true,
            (Products::Pairs, Format::Fp16)
            | (Products::Blocks16 | Products::Blocks8 | Products::Device, Format::Fp32) => false,
        }
    }
}

/// The data type in which gradients of parameters are summed: over sequences, microbatches and ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GradientSums {
    /// In single precision, in an order that follows from the layout.
    Single,
    /// Each sequence's contribution is rounded once to a whole number of 64 bits; those are summed. Their order changes
    /// no bit.
    Exact,
}

names! { GradientSums: "single" = Single, "exact" = Exact }

impl GradientSums {
    /// Bytes of one sum.
    pub fn size_bytes(self) -> usize {
        match self {
            GradientSums::Single => Format::Fp32.size_bytes(),
            GradientSums::Exact => size_of::<i64>(),
        }
    }
}

/// Where the weights are that the optimizer updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Masters {
    /// They are the parameters that layers read.
    Parameters,
    /// They are state of their own in single precision, sharded like the moments; parameters are their rounded copy.
    Apart,
}

impl Precision {
    /// The type in which parameters and activations are stored and sent; see the table of this module.
    pub fn stored(self) -> Format {
        match self {
            Precision::Fp32(_) => Format::Fp32,
            Precision::Bf16(_) => Format::Bf16,
            Precision::Fp16(..) => Format::Fp16,
        }
    }

    /// The order in which matrix products add their terms.
    pub fn products(self) -> Products {
        match self {
            Precision::Fp32(products) | Precision::Bf16(products) | Precision::Fp16(products, _) => products,
        }
    }

    /// Where the weights are that the optimizer updates.
    pub fn masters(self) -> Masters {
        match self {
            Precision::Fp32(_) => Masters::Parameters,
            Precision::Bf16(_) | Precision::Fp16(..) => Masters::Apart,
        }
    }
}

/// How the factor of the loss follows what it meets. Factors are powers of two, so that scaling changes no bit of a
/// normal number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossScaling {
    /// The factor of the first step.
    pub initial: f32,
    /// Steps in a row without overflow after which the factor doubles.
    pub window: u32,
    /// Overflows since the factor last grew, of which the last and every further one halve it.
    pub hysteresis: u32,
    /// The factor is never less; an overflow there that would halve it ends the run.
    pub minimum: f32,
}

impl LossScaling {
    /// The factor never grows beyond this: a run without gradients would double it for ever.
    pub const LARGEST: f32 = 4_294_967_296.0;

    /// The values that mixed-precision trainers commonly start with.
    pub const USUAL: LossScaling = LossScaling { initial: 65536.0, window: 1000, hysteresis: 2, minimum: 1.0 };
}
