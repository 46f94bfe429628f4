//! Small models and layouts that proofs run on.

use std::fmt;

use config::{
    Activation, Anomalies, BatchOrigin, Biases, Blocks, ContextParallel, Degrees, GradientSums, LearningRateSchedule,
    ModelSpec, Norm, NormKind, Pairing, Parallelism, Position, Precision, Products, Recompute, RotaryScaling,
    ScheduleKind, SequenceParallel, TopQuery, TrainSpec, ZeroStage,
};

use crate::text::{Labels, ProofText};

/// The two families that run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Style {
    /// Layer norm, learned positions, GELU, biases.
    Gpt2,
    /// RMS norm, rotary positions, SwiGLU, no biases.
    Llama,
}

impl fmt::Display for Style {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Style::Gpt2 => "GPT-2",
            Style::Llama => "Llama",
        })
    }
}

/// A model of 12 heads and 16 layers that is otherwise as small as can be: every degree up to 16 has something to
/// divide.
///
/// The vocabulary is one more than bytes have, a prime, so that every tensor parallelism pads it. Initial weights are
/// as wide as 0.25 / sqrt(hidden): blocks then add less to the residual stream than what they read from it, which is
/// what the derivation of the bounds assumes (`docs/numerics.md`).
pub fn proof_model(style: Style, num_kv_heads: usize, tied_embeddings: bool) -> ModelSpec {
    let (norm, position, activation, biases) = match style {
        Style::Gpt2 => (NormKind::Layer, Position::Learned { offset: 0 }, Activation::GeluTanh, Biases::All),
        Style::Llama => {
            let rotary = Position::Rotary {
                base: 10_000.0,
                rotary_dims: 4,
                pairing: Pairing::Half,
                scaling: RotaryScaling::Off,
            };
            (NormKind::Rms, rotary, Activation::SwiGlu, Biases::Off)
        }
    };
    ModelSpec {
        num_layers: 16,
        hidden: 48,
        num_heads: 12,
        num_kv_heads,
        head_dim: 4,
        ffn_hidden: 96,
        ffn_hidden_of_layers: None,
        experts: None,
        vocabulary: 257,
        context: 8,
        norm: Norm { kind: norm, epsilon: 1e-5 },
        position,
        local_attention: None,
        activation,
        blocks: Blocks::Sequential,
        biases,
        embedding_scale: None,
        query_scalar: None,
        attention_soft_cap: None,
        logit_divisor: None,
        logit_soft_cap: None,
        embedding_norm: false,
        tied_embeddings,
        padding_token: None,
        top_query: TopQuery::Off,
        qk_norm: config::QkNorm::Off,
        dropout: 0.1,
        attention_dropout: 0.1,
        init_std: 0.04,
        output_init_std: None,
        xavier_gain: None,
        lora: None,
        z_loss: None,
    }
}

/// A text for the proof model. It uses less than a quarter of the vocabulary, which is soon learned: the loss falls
/// quickly.
pub fn proof_text() -> ProofText {
    ProofText { vocabulary: 61, seed: 1, labels: Labels::Every }
}

/// Twenty steps of 48 sequences in which the loss falls by a fifth and more.
///
/// AdamW's epsilon is Llama 2's: an update whose gradient is all rounding error is then small instead of a full step.
pub fn proof_training() -> TrainSpec {
    TrainSpec {
        steps: 20,
        global_batch: 48,
        batch_ramp: None,
        batch_origin: BatchOrigin::default(),
        sequence_length: 8,
        learning_rate: 2e-3,
        min_learning_rate: 2e-4,
        warmup_steps: 4,
        schedule: LearningRateSchedule::Cosine,
        weight_decay: 0.1,
        beta1: 0.9,
        beta2: 0.95,
        epsilon: 1e-5,
        clip_norm: Some(1.0),
        embedding_gradient_scale: 1.0,
        ema_decay: None,
        schedule_steps: None,
        optimizer: config::Optimizer::AdamW,
        groups: vec![],
        anomalies: Anomalies::default(),
        precision: Precision::Fp32(Products::Chained),
        sums: GradientSums::Single,
        offload: config::Offload::None,
        seed: 1234,
    }
}

/// A layout of plain parts: no ZeRO, 1F1B.
pub fn plain_layout(dp: usize, tp: usize, pp: usize, microbatch_size: usize) -> Parallelism {
    Parallelism {
        degrees: Degrees { dp, cp: 1, tp, pp },
        context: ContextParallel::DEFAULT,
        sequence_parallel: SequenceParallel::Off,
        zero: ZeroStage::Off,
        shard_group: None,
        ep: 1,
        sum_tree: 1,
        schedule: ScheduleKind::OneForwardOneBackward.into(),
        microbatch_size,
        recompute: Recompute::None,
        stage_layers: None,
        overlap: None,
    }
}
