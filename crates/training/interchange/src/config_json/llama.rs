//! `LlamaForCausalLM`, `MistralForCausalLM`, `Qwen2ForCausalLM`, `Qwen3ForCausalLM` and `Olmo2ForCausalLM`, and their
//! relatives with experts: `MixtralForCausalLM`, `Qwen2MoeForCausalLM`, `Qwen3MoeForCausalLM` and `OlmoeForCausalLM`.

use config::{Activation, Biases, Blocks, ModelSpec, Norm, NormKind, QkNorm};
use serde_json::{Map, Value};

use super::experts;
use super::rope::{self, Rotated};
use super::windows::{self, Windows};
use super::{activation, activation_name, model, number, object, padding_token, sizes, write_sizes};
use crate::error::InterchangeError;
use crate::facts::Facts;
use crate::fields::Fields;
use crate::names::{Form::Whole, Names, ShardCopies, common};

pub(crate) const LLAMA: Facts = Facts {
    class: "LlamaForCausalLM",
    model_type: "llama",
    prefixes: ["model.", ""],
    names: &NAMES,
    copies: ShardCopies::Alike,
    read: |fields| read(&USUAL, fields),
    write: |model| write(&USUAL, model),
};

pub(crate) const MISTRAL: Facts = Facts {
    class: "MistralForCausalLM",
    model_type: "mistral",
    read: |fields| read(&OF_MISTRAL, fields),
    write: |model| write(&OF_MISTRAL, model),
    ..LLAMA
};

pub(crate) const QWEN2: Facts = Facts {
    class: "Qwen2ForCausalLM",
    model_type: "qwen2",
    read: |fields| read(&OF_QWEN2, fields),
    write: |model| write(&OF_QWEN2, model),
    ..LLAMA
};

pub(crate) const QWEN3: Facts = Facts {
    class: "Qwen3ForCausalLM",
    model_type: "qwen3",
    read: |fields| read(&OF_QWEN3, fields),
    write: |model| write(&OF_QWEN3, model),
    ..LLAMA
};

pub(crate) const OLMO2: Facts = Facts {
    class: "Olmo2ForCausalLM",
    model_type: "olmo2",
    names: &NAMES_OF_OLMO2,
    read: |fields| read(&OF_OLMO2, fields),
    write: |model| write(&OF_OLMO2, model),
    ..LLAMA
};

pub(crate) const MIXTRAL: Facts = Facts {
    class: "MixtralForCausalLM",
    model_type: "mixtral",
    names: &NAMES_OF_MIXTRAL,
    read: |fields| read(&OF_MIXTRAL, fields),
    write: |model| write(&OF_MIXTRAL, model),
    ..LLAMA
};

pub(crate) const QWEN2_MOE: Facts = Facts {
    class: "Qwen2MoeForCausalLM",
    model_type: "qwen2_moe",
    names: &NAMES_OF_EXPERTS,
    read: |fields| read(&OF_QWEN2_MOE, fields),
    write: |model| write(&OF_QWEN2_MOE, model),
    ..LLAMA
};

pub(crate) const QWEN3_MOE: Facts = Facts {
    class: "Qwen3MoeForCausalLM",
    model_type: "qwen3_moe",
    names: &NAMES_OF_EXPERTS,
    read: |fields| read(&OF_QWEN3_MOE, fields),
    write: |model| write(&OF_QWEN3_MOE, model),
    ..LLAMA
};

pub(crate) const OLMOE: Facts = Facts {
    class: "OlmoeForCausalLM",
    model_type: "olmoe",
    names: &NAMES_OF_EXPERTS,
    read: |fields| read(&OF_OLMOE, fields),
    write: |model| write(&OF_OLMOE, model),
    ..LLAMA
};

const NAMES: Names = Names {
    layer: "layers",
    of_layer: &[common::ATTENTION, common::HEAD_NORMS, common::NORMS, common::FEED_FORWARD],
    others: common::OTHERS,
};

const NAMES_OF_MIXTRAL: Names = Names {
    layer: "layers",
    of_layer: &[
        common::ATTENTION,
        common::HEAD_NORMS,
        common::NORMS,
        &[
            ("router", "block_sparse_moe.gate", Whole),
            ("experts.gate", "block_sparse_moe.experts.*.w1", Whole),
            ("experts.up", "block_sparse_moe.experts.*.w3", Whole),
            ("experts.down", "block_sparse_moe.experts.*.w2", Whole),
        ],
    ],
    others: common::OTHERS,
};

const NAMES_OF_EXPERTS: Names = Names {
    layer: "layers",
    of_layer: &[
        common::ATTENTION,
        common::HEAD_NORMS,
        common::NORMS,
        common::FEED_FORWARD,
        &[
            ("router", "mlp.gate", Whole),
            ("experts.gate", "mlp.experts.*.gate_proj", Whole),
            ("experts.up", "mlp.experts.*.up_proj", Whole),
            ("experts.down", "mlp.experts.*.down_proj", Whole),
            ("shared.gate", "mlp.shared_expert.gate_proj", Whole),
            ("shared.up", "mlp.shared_expert.up_proj", Whole),
            ("shared.down", "mlp.shared_expert.down_proj", Whole),
            ("shared_gate", "mlp.shared_expert_gate", Whole),
        ],
    ],
    others: common::OTHERS,
};

const NAMES_OF_OLMO2: Names = Names {
    layer: "layers",
    of_layer: &[
        common::ATTENTION,
        common::HEAD_NORMS,
        common::FEED_FORWARD,
        &[
            ("attention_output_norm", "post_attention_layernorm", Whole),
            ("ffn_output_norm", "post_feedforward_layernorm", Whole),
        ],
    ],
    others: common::OTHERS,
};

/// The differences between these classes.
pub(super) struct Variant {
    /// Epsilon of norms where a file leaves it out.
    epsilon: f32,
    /// The token of padding where a file leaves it out.
    padding: Option<usize>,
    blocks: Blocks,
    qk_norm: QkNorm,
    biases: BiasKeys,
    windows: Windows,
    /// Base of rotations where a file leaves it out.
    base: f32,
    /// The keys of experts, in a class that has them.
    experts: Option<&'static experts::Class>,
}

/// Where the biases of a class are said.
enum BiasKeys {
    /// In `attention_bias` and `mlp_bias`.
    Both,
    /// In `attention_bias`: its feed-forward block never has any.
    Attention,
    /// In `qkv_bias`, for queries, keys and values; true where a file leaves it out.
    QueryKeyValue,
    /// Nowhere: they are these.
    Fixed(Biases),
}

const USUAL: Variant = Variant {
    epsilon: 1e-6,
    padding: None,
    blocks: Blocks::Sequential,
    qk_norm: QkNorm::Off,
    biases: BiasKeys::Both,
    windows: Windows::Off,
    base: 10_000.0,
    experts: None,
};

const OF_MISTRAL: Variant = Variant { biases: BiasKeys::Fixed(Biases::Off), windows: Windows::All, ..USUAL };

const OF_QWEN2: Variant = Variant { biases: BiasKeys::Fixed(Biases::QueryKeyValue), windows: Windows::Last, ..USUAL };

const OF_QWEN3: Variant =
    Variant { biases: BiasKeys::Attention, qk_norm: QkNorm::Heads, windows: Windows::Last, ..USUAL };

const OF_OLMO2: Variant = Variant {
    epsilon: 1e-5,
    padding: Some(1),
    blocks: Blocks::PostNorm,
    qk_norm: QkNorm::Whole,
    biases: BiasKeys::Attention,
    ..USUAL
};

const OF_MIXTRAL: Variant = Variant {
    epsilon: 1e-5,
    biases: BiasKeys::Fixed(Biases::Off),
    windows: Windows::Given,
    base: 1e6,
    experts: Some(&experts::MIXTRAL),
    ..USUAL
};

pub(super) const OF_GRANITE_MOE: Variant =
    Variant { biases: BiasKeys::Attention, experts: Some(&experts::GRANITE), ..USUAL };

const OF_QWEN2_MOE: Variant =
    Variant { biases: BiasKeys::QueryKeyValue, windows: Windows::Refused, experts: Some(&experts::QWEN2), ..USUAL };

const OF_QWEN3_MOE: Variant = Variant { windows: Windows::Refused, experts: Some(&experts::QWEN3), ..OF_QWEN3 };

const OF_OLMOE: Variant = Variant {
    epsilon: 1e-5,
    padding: Some(1),
    qk_norm: QkNorm::Whole,
    biases: BiasKeys::Attention,
    experts: Some(&experts::OLMOE),
    ..USUAL
};

pub(super) fn read(class: &Variant, fields: &Fields) -> Result<ModelSpec, InterchangeError> {
    let sizes = sizes(fields)?;
    let [num_layers, hidden, num_heads, ffn_hidden, vocabulary, context] = sizes;
    let head_dim = fields.count_or("head_dim", hidden / num_heads.max(1))?;
    let norm = Norm { kind: NormKind::Rms, epsilon: fields.number_or("rms_norm_eps", class.epsilon)? };
    let position = rope::read(fields, ("rope_theta", class.base), Rotated::All, head_dim, context)?;
    Ok(ModelSpec {
        num_kv_heads: fields.count_or("num_key_value_heads", num_heads)?,
        head_dim,
        experts: experts::read(class.experts, fields, [num_layers, ffn_hidden])?,
        local_attention: windows::read(class.windows, fields, num_layers)?,
        activation: activation(fields, &GATES, "hidden_act", "silu")?,
        biases: biases(&class.biases, fields)?,
        blocks: class.blocks,
        padding_token: padding_token(fields, vocabulary, class.padding)?,
        qk_norm: class.qk_norm,
        tied_embeddings: fields.truth_or("tie_word_embeddings", false)?,
        attention_dropout: fields.number_or("attention_dropout", 0.0)?,
        init_std: fields.number_or("initializer_range", 0.02)?,
        ..model(sizes, norm, position)
    })
}

/// The library's names of functions of the gate.
const GATES: [(&str, Activation); 3] =
    [("silu", Activation::SwiGlu), ("gelu", Activation::GeGlu), ("swish", Activation::SwiGlu)];

fn biases(keys: &BiasKeys, fields: &Fields) -> Result<Biases, InterchangeError> {
    let has = |key| fields.truth_or(key, false);
    let said = match keys {
        BiasKeys::Fixed(biases) => return Ok(*biases),
        BiasKeys::QueryKeyValue => {
            return Ok(if fields.truth_or("qkv_bias", true)? { Biases::QueryKeyValue } else { Biases::Off });
        }
        BiasKeys::Attention => (has("attention_bias")?, false),
        BiasKeys::Both => (has("attention_bias")?, has("mlp_bias")?),
    };
    Ok(match said {
        (true, true) => Biases::All,
        (true, false) => Biases::Attention,
        (false, true) => Biases::FeedForward,
        (false, false) => Biases::Off,
    })
}

pub(super) fn write(class: &Variant, model: &ModelSpec) -> Map<String, Value> {
    let mut map = write_sizes(model);
    map.extend(rope::write("rope_theta", Rotated::All, model));
    map.extend(object([
        ("num_key_value_heads", model.num_kv_heads.into()),
        ("head_dim", model.head_dim.into()),
        ("hidden_act", activation_name(&GATES, model.activation).into()),
        ("rms_norm_eps", number(model.norm.epsilon)),
        ("attention_dropout", number(model.attention_dropout)),
        ("pad_token_id", model.padding_token.into()),
    ]));
    map.extend(windows::write(class.windows, model));
    map.extend(experts::write(class.experts, model));
    let has = |all: [Biases; 2]| Value::from(all.contains(&model.biases));
    let (attention, feed_forward) = ([Biases::All, Biases::Attention], [Biases::All, Biases::FeedForward]);
    match class.biases {
        BiasKeys::Both => {
            map.extend(object([("attention_bias", has(attention)), ("mlp_bias", has(feed_forward))]));
        }
        BiasKeys::Attention => map.extend(object([("attention_bias", has(attention))])),
        BiasKeys::QueryKeyValue => {
            map.insert("qkv_bias".into(), has([Biases::QueryKeyValue; 2]));
        }
        BiasKeys::Fixed(_) => {}
    }
    map
}
