//! A model and a training run as small as can be, in each of the numbers that a run can have.

use std::fmt;

use config::{Format, GradientSums, LossScaling, ModelSpec, Precision, Products, Tied, TrainSpec};

use crate::models::{Style, proof_model, proof_training};

/// The data types in which parameters and activations are stored and gradients summed, and the order in which products
/// add their terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// The stored type of parameters and activations.
    pub format: Format,
    /// How gradients are summed.
    pub sums: GradientSums,
    /// The order in which matrix products add their terms.
    pub products: Products,
}

impl Numbers {
    /// Every format, and exact sums in the widest: a narrow one rounds before the sum and after the update, which no
    /// layout changes. Each with
    /// both orders of products of the support matrix, but for fp16, which has the chained order only.
    pub const ALL: [Numbers; 7] = [
        Numbers::new(Format::Fp32, GradientSums::Single, Products::Chained),
        Numbers::new(Format::Bf16, GradientSums::Single, Products::Chained),
        Numbers::new(Format::Fp16, GradientSums::Single, Products::Chained),
        Numbers::new(Format::Fp32, GradientSums::Exact, Products::Chained),
        Numbers::new(Format::Fp32, GradientSums::Single, Products::Pairs),
        Numbers::new(Format::Bf16, GradientSums::Single, Products::Pairs),
        Numbers::new(Format::Fp32, GradientSums::Exact, Products::Pairs),
    ];

    /// Numbers with products in blocks, of which a test samples the support matrix.
    pub const IN_BLOCKS: [Numbers; 4] = [
        Numbers::new(Format::Bf16, GradientSums::Single, Products::Blocks16),
        Numbers::new(Format::Bf16, GradientSums::Exact, Products::Blocks16),
        Numbers::new(Format::Fp16, GradientSums::Single, Products::Blocks16),
        Numbers::new(Format::Bf16, GradientSums::Single, Products::Blocks8),
    ];

    /// These numbers with this order of products.
    pub const fn new(format: Format, sums: GradientSums, products: Products) -> Numbers {
        Numbers { format, sums, products }
    }

    /// The numbers of a run. In fp16 the first factor of the loss is so large that the first step is skipped, at least.
    pub fn precision(self) -> Precision {
        match self.format {
            Format::Fp32 => Precision::Fp32(self.products),
            Format::Bf16 => Precision::Bf16(self.products),
            Format::Fp16 => {
                let scaling = LossScaling { initial: FIRST_FACTOR, window: 2, hysteresis: 1, minimum: 1.0 };
                Precision::Fp16(self.products, scaling)
            }
        }
    }

    /// The same format with single sums and chained products.
    pub fn plain(self) -> Numbers {
        Numbers::new(self.format, GradientSums::Single, Products::Chained)
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.format.name())?;
        match self.sums {
            GradientSums::Single => {}
            GradientSums::Exact => f.write_str(" exact")?,
        }
        match self.products {
            Products::Chained => Ok(()),
            Products::Pairs | Products::Blocks16 | Products::Blocks8 | Products::Device => {
                write!(f, " {}", self.products.name())
            }
        }
    }
}

/// Six layers of four heads: two stages on each of four ranks. GPT-2 where the table is tied, Llama with two key and
/// value heads where not.
///
/// The smallest widths at which each of two replicas with tp = 2, and each of four without, holds a shard of every
/// layer. Initial weights are
/// as wide relative to the hidden dim as those of [`proof_model`].
pub fn model(tied: Tied) -> ModelSpec {
    let (style, num_kv_heads) = match tied {
        Tied::Yes => (Style::Gpt2, 4),
        Tied::No => (Style::Llama, 2),
    };
    let proof = proof_model(style, num_kv_heads, tied == Tied::Yes);
    ModelSpec { num_layers: 6, hidden: 32, num_heads: 4, head_dim: 8, ffn_hidden: 128, init_std: 0.044, ..proof }
}

/// Four steps of 24 sequences of four tokens.
pub fn training(numbers: Numbers) -> TrainSpec {
    TrainSpec {
        steps: 4,
        global_batch: GLOBAL_BATCH,
        sequence_length: SEQUENCE_LENGTH,
        warmup_steps: 1,
        learning_rate: 1e-2,
        min_learning_rate: 1e-3,
        precision: numbers.precision(),
        sums: numbers.sums,
        ..proof_training()
    }
}

/// Sequences of a step.
pub const GLOBAL_BATCH: usize = 24;

/// Tokens of a sequence.
pub const SEQUENCE_LENGTH: usize = 4;

/// A factor with which gradients of the first step overflow in fp16, and some halvings later do not.
const FIRST_FACTOR: f32 = 2_097_152.0;
