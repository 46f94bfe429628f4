//! A model described by data: sizes, norms, position, activation, how blocks join, biases, tying, dropout.

use crate::experts::ExpertsSpec;
use crate::local_attention::LocalAttention;
use crate::lora::LoraSpec;
use crate::names::names;
use crate::rotary_scaling::RotaryScaling;
use crate::unit::{Tied, Unit};
use crate::unit_class::{UnitClass, UnitClasses};

/// The widest head: attention kernels have buffers of that size.
pub const MAX_HEAD_DIM: usize = 512;

/// Which normalisation, with its epsilon.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    /// Layer norm (mean and variance, weight and bias) or RMS norm (weight only).
    pub kind: NormKind,
    /// Added to the variance or mean square.
    pub epsilon: f32,
}

/// See [`Norm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// `(x - mean) / sqrt(var + eps) * weight + bias`
    Layer,
    /// `x / sqrt(mean(x^2) + eps) * weight`
    Rms,
    /// `x / sqrt(mean(x^2) + eps) * (1 + weight)`, whose weight begins at 0: Gemma.
    RmsPlusOne,
}

names! { NormKind: "layer" = Layer, "rms" = Rms, "rms_plus_one" = RmsPlusOne }

/// How a token learns its position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Position {
    /// A learned table `[offset + context, D]` added to the token embedding: token at position `p` reads row `offset +
    /// p`.
    Learned {
        /// Rows before the first position's, which no token reads; 2 in OPT, else 0.
        offset: usize,
    },
    /// Rotation of the first `rotary_dims` of each query and key head (RoPE).
    Rotary {
        /// Angle of pair `i` is `position * base^(-2 i / rotary_dims)`.
        base: f32,
        /// How many dims of each head are rotated; even, at most `head_dim`.
        rotary_dims: usize,
        /// Which dims form a pair.
        pairing: Pairing,
        /// The scaling of angles for long sequences.
        scaling: RotaryScaling,
    },
    /// Scores fall linearly with the distance of a key, at a slope of each head's own (ALiBi, Press et al. 2022, arXiv
    /// 2108.12409).
    Alibi,
}

/// Which dims of a head are rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// `(i, i + rotary_dims / 2)`: GPT-NeoX, Llama.
    Half,
    /// `(2i, 2i + 1)`: GPT-J.
    Interleaved,
}

names! { Pairing: "half" = Half, "interleaved" = Interleaved }

/// The largest magnitude that [`Activation::SwiGluClamped`] lets through: that of gpt-oss.
pub const SWIGLU_LIMIT: f32 = 7.0;

/// The function between the two linear layers of the feed-forward block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// GELU, tanh form.
    GeluTanh,
    /// GELU with the error function.
    GeluErf,
    /// `x sigmoid(1.702 x)`: the quick form of GELU, CodeGeeX's FastGELU.
    GeluSigmoid,
    /// `max(x, 0)`.
    Relu,
    /// `silu(gate) * up`.
    SwiGlu,
    /// `gelu_erf(gate) * up`.
    GeGlu,
    /// `gelu_tanh(gate) * up`: Gemma.
    GeGluTanh,
    /// `(u + 1) g sigmoid(1.702 g)` with `g = min(gate, 7)` and `u = up` clamped to -7 to 7; values beyond have no
    /// gradient: gpt-oss.
    SwiGluClamped,
}

names! {
    Activation:
    "gelu_tanh" = GeluTanh, "gelu_erf" = GeluErf, "gelu_sigmoid" = GeluSigmoid, "relu" = Relu, "swiglu" = SwiGlu,
    "geglu" = GeGlu, "geglu_tanh" = GeGluTanh, "swiglu_clamped" = SwiGluClamped
}

impl Activation {
    /// Whether its slope jumps at inputs of initial weights: rounding that moves an input across the jump makes a
    /// gradient come or go. That of the clamped one jumps where these are not: at 7 and -7.
    pub fn has_kink(self) -> bool {
        match self {
            Activation::Relu => true,
            Activation::GeluTanh
            | Activation::GeluErf
            | Activation::GeluSigmoid
            | Activation::SwiGlu
            | Activation::GeGlu
            | Activation::GeGluTanh
            | Activation::SwiGluClamped => false,
        }
    }

    /// 2 for gated activations, whose first linear layer makes a gate next to each value; else 1.
    pub fn inputs_per_output(self) -> usize {
        match self {
            Activation::GeluTanh | Activation::GeluErf | Activation::GeluSigmoid | Activation::Relu => 1,
            Activation::SwiGlu | Activation::GeGlu | Activation::GeGluTanh | Activation::SwiGluClamped => 2,
        }
    }
}

/// How the two blocks of a layer, attention `A` and feed-forward `F`, join the residual stream `x`; `n1` and `n2` are
/// norms of their own, and so are `m1` and `m2`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Blocks {
    /// `r = x + A(n1(x))`, `y = r + F(n2(r))`: GPT-2, Llama.
    Sequential,
    /// `y = x + A(n1(x)) + F(n2(x))`: GPT-NeoX.
    Parallel,
    /// `r = x + m1(A(x))`, `y = r + m2(F(r))`, with norms of the blocks' outputs alone: OLMo 2.
    PostNorm,
    /// `r = x + m1(A(n1(x)))`, `y = r + m2(F(n2(r)))`, with norms before and after each block: Gemma 2 and 3.
    Sandwich,
    /// `u = n1(x)`, `r = alpha u + A(u)`, `v = n2(r)`, `y = alpha v + F(v)`: GLM-130B. It is DeepNorm (Wang et al.
    /// 2022, arXiv 2203.00555), whose norms are after the blocks, with each norm counted to the block that follows it.
    DeepNorm {
        /// Weight of the stream next to a block.
        alpha: f32,
    },
}

/// Which linear layers have biases. Those of a feed-forward block of experts are the router and each expert's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Biases {
    /// All: query, key, value, attention output, up (and gate), down.
    All,
    /// Query, key, value and attention output: an option of Llama and Qwen 3.
    Attention,
    /// Query, key and value: Qwen 2.
    QueryKeyValue,
    /// Up (and gate) and down: options of GPT-NeoX and Llama.
    FeedForward,
    /// None.
    Off,
}

names! { Biases: "true" = All, "false" = Off, "qkv" = QueryKeyValue, "attention" = Attention, "ffn" = FeedForward }

impl Biases {
    /// Whether feed-forward blocks have some.
    pub fn are_in_feed_forward(self) -> bool {
        match self {
            Biases::All | Biases::FeedForward => true,
            Biases::Attention | Biases::QueryKeyValue | Biases::Off => false,
        }
    }
}

/// Whether one more layer is between the final norm and the output matrix: CodeGeeX. Its keys and values are those of
/// the normed stream, as in any layer; its queries are rows of a learned table, one per position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopQuery {
    /// There is.
    On,
    /// The output matrix reads the normed stream.
    Off,
}

/// Which norms queries and keys pass before they are rotated: RMS norms, with an epsilon as the others have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QkNorm {
    /// None.
    Off,
    /// One of each head, with one weight of `head_dim` for all query heads and one for all key heads: Qwen 3, Gemma 3.
    Heads,
    /// One over all query heads of a token and one over all its key heads, with a weight for each column: OLMo 2.
    Whole,
}

names! { QkNorm: "true" = Heads, "false" = Off, "whole" = Whole }

impl QkNorm {
    /// Numbers of queries or keys that are normed together; `None` without norms.
    pub fn width(self, head_dim: usize, heads: usize) -> Option<usize> {
        match self {
            QkNorm::Off => None,
            QkNorm::Heads => Some(head_dim),
            QkNorm::Whole => Some(head_dim * heads),
        }
    }
}

/// Keys of a sequence and heads that dropout of attention probabilities tells apart: both are parts of one counter.
pub const MAX_DROPOUT_KEYS: usize = 1 << 18;
/// See [`MAX_DROPOUT_KEYS`].
pub const MAX_DROPOUT_HEADS: usize = 1 << 16;

/// Everything that defines the function that is learned, and its initial weights' distribution.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpec {
    /// Transformer layers.
    pub num_layers: usize,
    /// Width `D` of the residual stream.
    pub hidden: usize,
    /// Query heads.
    pub num_heads: usize,
    /// Key and value heads; divides `num_heads`.
    pub num_kv_heads: usize,
    /// Width of one head.
    pub head_dim: usize,
    /// Width `F` of the feed-forward block (of its output side, for gated activations).
    pub ffn_hidden: usize,
    /// The width of each layer, where layers differ; the top query's layer keeps `ffn_hidden`.
    pub ffn_hidden_of_layers: Option<Vec<usize>>,
    /// Experts in place of the feed-forward block, in some layers or all.
    pub experts: Option<ExpertsSpec>,
    /// Tokens `V` that the model knows; rows added so that tensor parallelism divides them are not counted.
    pub vocabulary: usize,
    /// Longest sequence `S`.
    pub context: usize,
    /// Normalisation before attention, before the feed-forward block, and at the end.
    pub norm: Norm,
    /// Position information.
    pub position: Position,
    /// Which layers see the nearest tokens only; `None` where all see all tokens before.
    pub local_attention: Option<LocalAttention>,
    /// Feed-forward activation.
    pub activation: Activation,
    /// How the blocks of a layer join the residual stream.
    pub blocks: Blocks,
    /// Which linear layers have biases.
    pub biases: Biases,
    /// Factor of the token table's rows where they enter the stream; `None` is 1.
    pub embedding_scale: Option<f32>,
    /// Scores are divided by the square root of this number; `None` is `head_dim`.
    pub query_scalar: Option<f32>,
    /// Scores of attention end below this number, as `cap tanh(score / cap)`: Gemma 2.
    pub attention_soft_cap: Option<f32>,
    /// Logits are divided by this number, before their soft cap; `None` is 1.
    pub logit_divisor: Option<f32>,
    /// Logits end below this number, as `cap tanh(logit / cap)`: Gemma 2.
    pub logit_soft_cap: Option<f32>,
    /// Whether the embedding ends in a norm, before its dropout: BLOOM.
    pub embedding_norm: bool,
    /// Whether the head reads the token table.
    pub tied_embeddings: bool,
    /// A token whose row of the table has no gradient of being looked up, as padding has in OPT and Llama; a head that
    /// reads the table trains its row, too.
    pub padding_token: Option<usize>,
    /// Whether a layer with queries of its own is before the head's output matrix.
    pub top_query: TopQuery,
    /// Norms of queries and keys.
    pub qk_norm: QkNorm,
    /// Dropout after the embedding and after both blocks of a layer.
    pub dropout: f32,
    /// Dropout of attention probabilities.
    pub attention_dropout: f32,
    /// Standard deviation of initial weights.
    pub init_std: f32,
    /// The standard deviation of linear layers back into the residual stream; `None` is `init_std / sqrt(2 L)`, with
    /// which its variance does not grow with depth.
    pub output_init_std: Option<f32>,
    /// Where given, maps in layers begin as Xavier's do instead (Glorot and Bengio 2010), with the standard deviation
    /// `gain sqrt(2 / (inputs + outputs))`: this gain for values, the attention output and the feed-forward block, 1
    /// for queries and keys (DeepNorm, arXiv 2203.00555, figure 2).
    pub xavier_gain: Option<f32>,
    /// Adapters, which alone are trained; `None` where all parameters are.
    pub lora: Option<LoraSpec>,
    /// Coefficient of the z-loss in training, `coefficient * log(sum of exp(logit))^2` of each token (PaLM, arXiv
    /// 2204.02311, section 5); `None` for none.
    pub z_loss: Option<f32>,
}

impl ModelSpec {
    /// Whether the parameters of `unit` are trained: those of adapters alone, where there are any.
    pub fn trains(&self, unit: Unit) -> bool {
        self.lora.is_none() || unit.is_adapters()
    }

    /// The classes of the model's units.
    pub fn classes(&self) -> UnitClasses {
        let is_local_alike = self.local_attention.as_ref().is_none_or(|local| local.pattern.len() < 2);
        let has_experts_alike = !self.has_dense_blocks() || self.num_expert_layers() == 0;
        if self.ffn_hidden_of_layers.is_none() && is_local_alike && has_experts_alike {
            return UnitClasses::default();
        }
        let layers = (0..self.num_layers as u32).map(Unit::Layer);
        UnitClasses::of_shapes(
            layers.map(|layer| (self.ffn_hidden_of(layer), self.reach_of(layer), self.experts_of(layer).is_some())),
        )
    }

    /// Width of the feed-forward block of `unit`, the head's being that of the top query's layer.
    pub fn ffn_hidden_of(&self, unit: Unit) -> usize {
        let listed = match (unit, &self.ffn_hidden_of_layers) {
            (Unit::Layer(layer), Some(widths)) => widths.get(layer as usize).copied(),
            (Unit::Table | Unit::Embedding | Unit::Layer(_) | Unit::Head, _) => None,
            (Unit::Adapters(_) | Unit::Experts(_), _) => None,
        };
        listed.unwrap_or(self.ffn_hidden)
    }

    /// The different widths of feed-forward blocks that are split over tensor parallelism, with the keys that give
    /// them; each width once. Experts are not split.
    pub fn ffn_widths(&self) -> Vec<(&'static str, usize)> {
        let mut listed: Vec<usize> = self.ffn_hidden_of_layers.iter().flatten().copied().collect();
        listed.sort_unstable();
        listed.dedup();
        let own = self.has_dense_blocks().then_some(("model.ffn_hidden", self.ffn_hidden));
        let shared = self.experts.and_then(|experts| experts.shared);
        let shared = shared.map(|shared| ("model.shared_expert_hidden", shared.hidden));
        let listed = listed.into_iter().map(|width| ("model.ffn_hidden_of_layers", width));
        own.into_iter().chain(shared).chain(listed).collect()
    }

    /// The class of a unit.
    pub fn class_of(&self, unit: Unit) -> UnitClass {
        self.classes().class_of(unit)
    }

    /// [`ModelSpec::tied_embeddings`] as a type.
    pub fn tied(&self) -> Tied {
        if self.tied_embeddings { Tied::Yes } else { Tied::No }
    }

    /// Whether the exact gradient of key biases, or of some, is zero: where keys are neither normed nor rotated in all
    /// dims, a bias of all keys shifts all scores of a query alike. Soft caps tell scores of different sizes apart.
    pub fn has_idle_key_biases(&self) -> bool {
        let is_rotated = match self.position {
            Position::Rotary { rotary_dims, .. } => rotary_dims == self.head_dim,
            Position::Learned { .. } | Position::Alibi => false,
        };
        self.qk_norm == QkNorm::Off && self.attention_soft_cap.is_none() && !is_rotated
    }

    /// Layers that attend: those of the stack, and the top query's.
    pub fn attention_layers(&self) -> usize {
        match self.top_query {
            TopQuery::Off => self.num_layers,
            TopQuery::On => self.num_layers + 1,
        }
    }

    /// Real numbers that a training step sums over tokens: cross-entropy, the z-loss where there is one, and those of
    /// routers.
    pub fn num_losses(&self) -> usize {
        let of_routers =
            self.experts.filter(|_| self.num_expert_layers() > 0).map(|experts| experts.balance.num_sums());
        1 + usize::from(self.z_loss.is_some()) + of_routers.unwrap_or(0)
    }

    /// Choices that a training step counts: one number for each expert of each layer, and that of dropped ones.
    pub fn num_choice_counts(&self) -> usize {
        let counted = self.experts.filter(|experts| experts.balance.counts_choices());
        let dropped = |experts: ExpertsSpec| usize::from(experts.balance.capacity.is_some());
        counted.map_or(0, |experts| experts.number * self.num_expert_layers() + dropped(experts))
    }

    /// Columns of the query part of the fused projection: `num_heads * head_dim`.
    pub fn query_width(&self) -> usize {
        self.num_heads * self.head_dim
    }

    /// Columns of the key (or value) part of the fused projection: `num_kv_heads * head_dim`.
    pub fn key_width(&self) -> usize {
        self.num_kv_heads * self.head_dim
    }

    /// Vocabulary rows after padding, so that `tp` ranks hold equally many.
    pub fn padded_vocabulary(&self, tp: usize) -> usize {
        self.vocabulary.div_ceil(tp) * tp
    }
}
