//! `LlamaForCausalLM`, `MistralForCausalLM`, `Qwen2ForCausalLM`, `Qwen3ForCausalLM` and
//! `Olmo2ForCausalLM`.

use config::{Activation, Biases, Blocks, ModelSpec, Norm, NormKind, QkNorm};
use serde_json::{Map, Value};

use super::rope::{self, Rotated};
use super::windows;
use super::{activation, activation_name, model, number, object, padding_token, sizes, write_sizes};
use crate::error::InterchangeError;
use crate::family::Family;
use crate::fields::Fields;

pub(super) fn read(family: Family, fields: &Fields) -> Result<ModelSpec, InterchangeError> {
    ["num_experts", "num_local_experts"].into_iter().try_for_each(|key| fields.absent(key))?;
    let sizes = sizes(fields)?;
    let [num_layers, hidden, num_heads, _, vocabulary, context] = sizes;
    let head_dim = fields.count_or("head_dim", hidden / num_heads.max(1))?;
    let norm = Norm { kind: NormKind::Rms, epsilon: fields.number_or("rms_norm_eps", usual_epsilon(family))? };
    let position = rope::read(fields, ("rope_theta", 10_000.0), Rotated::All, head_dim, context)?;
    Ok(ModelSpec {
        num_kv_heads: fields.count_or("num_key_value_heads", num_heads)?,
        head_dim,
        local_attention: windows::read(family, fields, num_layers)?,
        activation: activation(fields, &GATES, "hidden_act", "silu")?,
        biases: biases(family, fields)?,
        blocks: if family == Family::Olmo2 { Blocks::PostNorm } else { Blocks::Sequential },
        padding_token: padding_token(fields, vocabulary, usual_padding(family))?,
        qk_norm: qk_norm(family),
        tied_embeddings: fields.truth_or("tie_word_embeddings", false)?,
        attention_dropout: fields.number_or("attention_dropout", 0.0)?,
        init_std: fields.number_or("initializer_range", 0.02)?,
        ..model(sizes, norm, position)
    })
}

fn usual_epsilon(family: Family) -> f32 {
    if family == Family::Olmo2 { 1e-5 } else { 1e-6 }
}

/// The token of padding where a file leaves it out.
fn usual_padding(family: Family) -> Option<usize> {
    (family == Family::Olmo2).then_some(1)
}

fn qk_norm(family: Family) -> QkNorm {
    match family {
        Family::Qwen3 => QkNorm::Heads,
        Family::Olmo2 => QkNorm::Whole,
        Family::Llama
        | Family::Mistral
        | Family::Qwen2
        | Family::Gemma2
        | Family::Gemma3
        | Family::GptNeoX
        | Family::Bloom
        | Family::Opt
        | Family::Gpt2
        | Family::Glm
        | Family::CodeGeeX
        | Family::Metaseq
        | Family::GptNeoXShards => QkNorm::Off,
    }
}

/// The library's names of functions of the gate.
const GATES: [(&str, Activation); 3] =
    [("silu", Activation::SwiGlu), ("gelu", Activation::GeGlu), ("swish", Activation::SwiGlu)];

fn biases(family: Family, fields: &Fields) -> Result<Biases, InterchangeError> {
    let has = |key| fields.truth_or(key, false);
    match family {
        Family::Qwen2 => Ok(Biases::QueryKeyValue),
        Family::Mistral => Ok(Biases::Off),
        // Its feed-forward block never has any.
        Family::Qwen3 | Family::Olmo2 => Ok(if has("attention_bias")? { Biases::Attention } else { Biases::Off }),
        Family::Llama
        | Family::Gemma2
        | Family::Gemma3
        | Family::GptNeoX
        | Family::Bloom
        | Family::Opt
        | Family::Gpt2
        | Family::Glm
        | Family::CodeGeeX
        | Family::Metaseq
        | Family::GptNeoXShards => Ok(match (has("attention_bias")?, has("mlp_bias")?) {
            (true, true) => Biases::All,
            (true, false) => Biases::Attention,
            (false, true) => Biases::FeedForward,
            (false, false) => Biases::Off,
        }),
    }
}

pub(super) fn write(family: Family, model: &ModelSpec) -> Map<String, Value> {
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
    map.extend(windows::write(family, model));
    if matches!(family, Family::Llama | Family::Qwen3 | Family::Olmo2) {
        map.insert("attention_bias".into(), matches!(model.biases, Biases::All | Biases::Attention).into());
    }
    if family == Family::Llama {
        map.insert("mlp_bias".into(), matches!(model.biases, Biases::All | Biases::FeedForward).into());
    }
    map
}
