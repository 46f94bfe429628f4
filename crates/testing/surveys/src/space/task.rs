//! The task of a run: its model and the sizes of its training.

use std::fmt;

use config::{Activation, Blocks, ModelSpec, Pairing, Position, RotaryScaling, Tied, TopQuery, TrainSpec};
use testkit::models::{Style, proof_model, proof_training};
use testkit::numbers::{Numbers, SEQUENCE_LENGTH, model, training};

/// Models with the sizes of their training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Task {
    /// Sixteen layers: every degree up to 16 has something to divide.
    Proof {
        style: Style,
        /// Key and value heads.
        num_kv_heads: usize,
        /// Whether the head reads the token table.
        tied: Tied,
        steps: u32,
        /// Sequences of a step.
        global_batch: usize,
    },
    /// As small as can be, so that thousands of runs are few minutes.
    Small(Shape),
    /// Two layers and two steps of sequences that many ranks can share.
    Long {
        style: Style,
        /// Key and value heads.
        num_kv_heads: usize,
    },
}

/// Tokens of a sequence of [`Task::Long`]: several tiles of attention's keys, and a multiple of twice most degrees.
const LONG_SEQUENCE: usize = 96;

impl Task {
    /// [`Task::Proof`] for twenty steps of 48 sequences.
    pub fn proof(style: Style, num_kv_heads: usize, tied: Tied) -> Task {
        let TrainSpec { steps, global_batch, .. } = proof_training();
        Task::Proof { style, num_kv_heads, tied, steps, global_batch }
    }

    /// Tokens of a sequence.
    pub fn sequence_length(self) -> usize {
        match self {
            Task::Proof { .. } => proof_training().sequence_length,
            Task::Small(_) => SEQUENCE_LENGTH,
            Task::Long { .. } => LONG_SEQUENCE,
        }
    }

    /// Sequences of a microbatch in references of exact sums: others than the cases have.
    pub(super) fn reference_microbatch(self) -> usize {
        match self {
            Task::Proof { .. } => 1,
            Task::Small(_) | Task::Long { .. } => 2,
        }
    }

    /// Its model, for sequences of `length` tokens.
    pub fn model(self, length: usize) -> ModelSpec {
        match self {
            Task::Proof { style, num_kv_heads, tied, .. } => proof_model(style, num_kv_heads, tied == Tied::Yes),
            Task::Small(shape) => {
                let model = shape.model();
                ModelSpec { context: length.max(model.context), ..model }
            }
            Task::Long { style, num_kv_heads } => {
                let proof = proof_model(style, num_kv_heads, style == Style::Gpt2);
                ModelSpec { context: length, num_layers: 2, ..proof }
            }
        }
    }

    /// Its training on `dp` replicas.
    pub fn training(self, numbers: Numbers, dp: usize) -> TrainSpec {
        let (precision, sums) = (numbers.precision(), numbers.sums);
        match self {
            Task::Proof { steps, global_batch, .. } => {
                TrainSpec { steps, global_batch, precision, sums, ..proof_training() }
            }
            Task::Small(_) => training(numbers),
            // Enough microbatches of any replica that every schedule has its groups.
            Task::Long { .. } => {
                TrainSpec { steps: 2, warmup_steps: 1, global_batch: dp * 2 * 2, precision, sums, ..proof_training() }
            }
        }
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Task::Proof { style, num_kv_heads, tied: Tied::Yes, .. } => write!(f, "{style} kv {num_kv_heads} tied"),
            Task::Proof { style, num_kv_heads, tied: Tied::No, .. } => write!(f, "{style} kv {num_kv_heads} untied"),
            Task::Small(shape) => write!(f, "small {shape}"),
            Task::Long { style, num_kv_heads } => write!(f, "{style} kv {num_kv_heads} of two layers"),
        }
    }
}

/// Traits of small models; their sizes are those of [`model`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shape {
    /// Layer norms, a tied table.
    Gpt2,
    /// RMS norms, rotation, gated activations, fewer key than query heads, an output matrix of its own.
    Llama,
    /// Blocks side by side, half of each head rotated, an output matrix of its own; no dropout of the blocks' sums, so
    /// that they are taken together.
    GptNeoX,
    /// A layer after the final norm whose queries come from a table.
    CodeGeeX,
}

impl Shape {
    /// Its model.
    pub fn model(self) -> ModelSpec {
        let gpt2 = model(Tied::Yes);
        match self {
            Shape::Gpt2 => gpt2,
            Shape::Llama => model(Tied::No),
            Shape::GptNeoX => {
                let (pairing, scaling) = (Pairing::Half, RotaryScaling::Off);
                let position = Position::Rotary { base: 10_000.0, rotary_dims: gpt2.head_dim / 2, pairing, scaling };
                ModelSpec { blocks: Blocks::Parallel, position, tied_embeddings: false, dropout: 0.0, ..gpt2 }
            }
            Shape::CodeGeeX => ModelSpec { top_query: TopQuery::On, activation: Activation::GeluSigmoid, ..gpt2 },
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Shape::Gpt2 => "GPT-2",
            Shape::Llama => "Llama",
            Shape::GptNeoX => "GPT-NeoX",
            Shape::CodeGeeX => "CodeGeeX",
        })
    }
}
