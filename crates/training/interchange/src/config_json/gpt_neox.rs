//! `GPTNeoXForCausalLM`: GPT-NeoX-20B, Pythia.

use config::{Activation, Biases, Blocks, ModelSpec};
use serde_json::{Map, Value};

use super::rope::{self, Rotated};
use super::{PLAIN, activation, activation_name, layer_norm, model, number, object, sizes, write_sizes};
use crate::error::InterchangeError;
use crate::facts::Facts;
use crate::fields::Fields;
use crate::names::{Form::InEachHead, Form::Whole, Names, ShardCopies, Table};

pub(crate) const GPT_NEOX: Facts = Facts {
    class: "GPTNeoXForCausalLM",
    model_type: "gpt_neox",
    prefixes: ["gpt_neox.", ""],
    names: &NAMES,
    copies: ShardCopies::Alike,
    read,
    write,
};

pub(super) const LAYER: &Table = &[
    ("attention_norm", "input_layernorm", Whole),
    ("attention.query", "attention.query_key_value", InEachHead(0)),
    ("attention.key", "attention.query_key_value", InEachHead(1)),
    ("attention.value", "attention.query_key_value", InEachHead(2)),
    ("attention.output", "attention.dense", Whole),
    ("ffn_norm", "post_attention_layernorm", Whole),
    ("ffn.up", "mlp.dense_h_to_4h", Whole),
    ("ffn.down", "mlp.dense_4h_to_h", Whole),
];

const NAMES: Names = Names {
    layer: "layers",
    of_layer: &[LAYER],
    others: &[
        ("embedding.token", "embed_in", Whole),
        ("head.norm", "final_layer_norm", Whole),
        ("head.output", "embed_out", Whole),
    ],
};

const BASE: &str = "rotary_emb_base";
const ROTATED: Rotated = Rotated::Share("rotary_pct", 0.25);

fn read(fields: &Fields) -> Result<ModelSpec, InterchangeError> {
    let sizes = sizes(fields)?;
    let [_, hidden, num_heads, _, _, context] = sizes;
    let head_dim = hidden / num_heads.max(1);
    let position = rope::read(fields, (BASE, 10_000.0), ROTATED, head_dim, context)?;
    let is_parallel = fields.truth_or("use_parallel_residual", true)?;
    Ok(ModelSpec {
        activation: activation(fields, PLAIN, "hidden_act", "gelu")?,
        blocks: if is_parallel { Blocks::Parallel } else { Blocks::Sequential },
        biases: if fields.truth_or("attention_bias", true)? { Biases::All } else { Biases::FeedForward },
        tied_embeddings: fields.truth_or("tie_word_embeddings", false)?,
        dropout: fields.number_or("hidden_dropout", 0.0)?,
        attention_dropout: fields.number_or("attention_dropout", 0.0)?,
        init_std: fields.number_or("initializer_range", 0.02)?,
        ..model(sizes, layer_norm(fields.number_or("layer_norm_eps", 1e-5)?), position)
    })
}

fn write(model: &ModelSpec) -> Map<String, Value> {
    let mut map = write_sizes(model);
    map.extend(rope::write(BASE, ROTATED, model));
    map.extend(object([
        ("attention_bias", (model.biases == Biases::All).into()),
        ("hidden_act", own_name(model.activation).into()),
        ("use_parallel_residual", (model.blocks == Blocks::Parallel).into()),
        ("layer_norm_eps", number(model.norm.epsilon)),
        ("hidden_dropout", number(model.dropout)),
        ("attention_dropout", number(model.attention_dropout)),
    ]));
    map
}

/// Of the library's names for the tanh form of GELU, the one that GPT-NeoX-20B has; it rounds a constant otherwise than
/// the others.
fn own_name(activation: Activation) -> &'static str {
    if activation == Activation::GeluTanh { "gelu_fast" } else { activation_name(PLAIN, activation) }
}
