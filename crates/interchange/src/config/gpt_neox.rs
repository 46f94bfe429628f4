//! `GPTNeoXForCausalLM`: GPT-NeoX-20B, Pythia.

use serde_json::{Map, Value};
use spec::{Activation, Blocks, ModelSpec};

use super::{activation, activation_name, layer_norm, model, number, object, rotary, sizes, turned, write_sizes};
use crate::error::InterchangeError;
use crate::fields::Fields;

pub(super) fn read(fields: &Fields) -> Result<ModelSpec, InterchangeError> {
    fields.only("attention_bias", true)?;
    let sizes = sizes(fields)?;
    let [_, hidden, num_heads, ..] = sizes;
    let head_dim = hidden / num_heads.max(1);
    let position = rotary(fields, ("rotary_emb_base", 10_000.0), ("rotary_pct", 0.25), head_dim)?;
    let is_parallel = fields.truth_or("use_parallel_residual", true)?;
    Ok(ModelSpec {
        activation: activation(fields, "hidden_act", "gelu")?,
        blocks: if is_parallel { Blocks::Parallel } else { Blocks::Sequential },
        tied_embeddings: fields.truth_or("tie_word_embeddings", false)?,
        dropout: fields.number_or("hidden_dropout", 0.0)?,
        attention_dropout: fields.number_or("attention_dropout", 0.0)?,
        init_std: fields.number_or("initializer_range", 0.02)?,
        ..model(sizes, layer_norm(fields.number_or("layer_norm_eps", 1e-5)?), position)
    })
}

pub(super) fn write(model: &ModelSpec) -> Map<String, Value> {
    let (base, share) = turned(model);
    let mut map = write_sizes(model);
    map.extend(object([
        ("rotary_emb_base", number(base)),
        ("rotary_pct", number(share)),
        ("hidden_act", own_name(model.activation).into()),
        ("use_parallel_residual", (model.blocks == Blocks::Parallel).into()),
        ("layer_norm_eps", number(model.norm.epsilon)),
        ("hidden_dropout", number(model.dropout)),
        ("attention_dropout", number(model.attention_dropout)),
    ]));
    map
}

/// Of the library's names for the tanh form of GELU, the one that GPT-NeoX-20B has; it rounds a constant otherwise than the others.
fn own_name(activation: Activation) -> &'static str {
    if activation == Activation::GeluTanh { "gelu_fast" } else { activation_name(activation) }
}
