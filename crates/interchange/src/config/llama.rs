//! `LlamaForCausalLM`, `Qwen2ForCausalLM` and `Qwen3ForCausalLM`.

use serde_json::{Map, Value};
use spec::{Activation, Biases, ModelSpec, Norm, NormKind};

use super::{model, number, object, rotary, sizes, turned, write_sizes};
use crate::error::InterchangeError;
use crate::family::Family;
use crate::fields::Fields;

pub(super) fn read(family: Family, fields: &Fields) -> Result<ModelSpec, InterchangeError> {
    fields.only("hidden_act", "silu")?;
    fields.only("use_sliding_window", false)?;
    let sizes = sizes(fields)?;
    let [_, hidden, num_heads, ..] = sizes;
    let head_dim = fields.count_or("head_dim", hidden / num_heads.max(1))?;
    let norm = Norm { kind: NormKind::Rms, epsilon: fields.number_or("rms_norm_eps", 1e-6)? };
    let position = rotary(fields, ("rope_theta", 10_000.0), ("partial_rotary_factor", 1.0), head_dim)?;
    Ok(ModelSpec {
        num_kv_heads: fields.count_or("num_key_value_heads", num_heads)?,
        head_dim,
        activation: Activation::SwiGlu,
        biases: biases(family, fields)?,
        qk_norm: family == Family::Qwen3,
        tied_embeddings: fields.truth_or("tie_word_embeddings", false)?,
        attention_dropout: fields.number_or("attention_dropout", 0.0)?,
        init_std: fields.number_or("initializer_range", 0.02)?,
        ..model(sizes, norm, position)
    })
}

fn biases(family: Family, fields: &Fields) -> Result<Biases, InterchangeError> {
    match family {
        Family::Qwen2 => Ok(Biases::QueryKeyValue),
        // The feed-forward block of Qwen 3 never has any, that of Llama has a key of its own.
        Family::Qwen3 => fields.only("attention_bias", false).map(|()| Biases::Off),
        Family::Llama
        | Family::GptNeoX
        | Family::Bloom
        | Family::Opt
        | Family::Gpt2
        | Family::Glm
        | Family::CodeGeeX
        | Family::Metaseq
        | Family::GptNeoXShards => {
            let attention = fields.truth_or("attention_bias", false)?;
            fields.only("mlp_bias", attention)?;
            Ok(if attention { Biases::All } else { Biases::Off })
        }
    }
}

pub(super) fn write(family: Family, model: &ModelSpec) -> Map<String, Value> {
    let (base, share) = turned(model);
    let mut map = write_sizes(model);
    map.extend(object([
        ("num_key_value_heads", model.num_kv_heads.into()),
        ("head_dim", model.head_dim.into()),
        ("hidden_act", "silu".into()),
        ("rms_norm_eps", number(model.norm.epsilon)),
        ("rope_theta", number(base)),
        ("attention_dropout", number(model.attention_dropout)),
    ]));
    if share < 1.0 {
        map.insert("partial_rotary_factor".into(), number(share));
    }
    if family == Family::Llama {
        let all = Value::from(model.biases == Biases::All);
        map.extend(object([("attention_bias", all.clone()), ("mlp_bias", all)]));
    }
    map
}
