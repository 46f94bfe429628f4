//! `GPT2LMHeadModel`.

use config::{ModelSpec, Position};
use serde_json::{Map, Value};

use super::{PLAIN, activation, activation_name, layer_norm, model, number, object};
use crate::error::InterchangeError;
use crate::facts::Facts;
use crate::fields::Fields;
use crate::names::{Form::Transposed, Form::TransposedThird, Form::Whole, LM_HEAD, Names, ShardCopies};

pub(crate) const GPT2: Facts = Facts {
    class: "GPT2LMHeadModel",
    model_type: "gpt2",
    prefixes: ["transformer.", ""],
    names: &NAMES,
    copies: ShardCopies::Alike,
    read,
    write,
};

const NAMES: Names = Names {
    layer: "h",
    of_layer: &[&[
        ("attention_norm", "ln_1", Whole),
        ("attention.query", "attn.c_attn", TransposedThird(0)),
        ("attention.key", "attn.c_attn", TransposedThird(1)),
        ("attention.value", "attn.c_attn", TransposedThird(2)),
        ("attention.output", "attn.c_proj", Transposed),
        ("ffn_norm", "ln_2", Whole),
        ("ffn.up", "mlp.c_fc", Transposed),
        ("ffn.down", "mlp.c_proj", Transposed),
    ]],
    others: &[
        ("embedding.token", "wte", Whole),
        ("embedding.position", "wpe", Whole),
        ("head.norm", "ln_f", Whole),
        LM_HEAD,
    ],
};

fn read(fields: &Fields) -> Result<ModelSpec, InterchangeError> {
    fields.only("scale_attn_weights", true)?;
    fields.only("scale_attn_by_inverse_layer_idx", false)?;
    fields.only("add_cross_attention", false)?;
    let hidden = fields.count("n_embd")?;
    let sizes = [
        fields.count("n_layer")?,
        hidden,
        fields.count("n_head")?,
        fields.count_or("n_inner", hidden.saturating_mul(4))?,
        fields.count("vocab_size")?,
        fields.count_or("n_positions", 1024)?,
    ];
    let norm = layer_norm(fields.number_or("layer_norm_epsilon", 1e-5)?);
    Ok(ModelSpec {
        activation: activation(fields, PLAIN, "activation_function", "gelu_new")?,
        tied_embeddings: fields.truth_or("tie_word_embeddings", true)?,
        dropout: fields.number_or("resid_pdrop", 0.1)?,
        attention_dropout: fields.number_or("attn_pdrop", 0.1)?,
        init_std: fields.number_or("initializer_range", 0.02)?,
        ..model(sizes, norm, Position::Learned { offset: 0 })
    })
}

fn write(model: &ModelSpec) -> Map<String, Value> {
    object([
        ("n_embd", model.hidden.into()),
        ("n_head", model.num_heads.into()),
        ("n_layer", model.num_layers.into()),
        ("n_inner", model.ffn_hidden.into()),
        ("vocab_size", model.vocabulary.into()),
        ("n_positions", model.context.into()),
        ("activation_function", activation_name(PLAIN, model.activation).into()),
        ("layer_norm_epsilon", number(model.norm.epsilon)),
        ("resid_pdrop", number(model.dropout)),
        ("embd_pdrop", number(model.dropout)),
        ("attn_pdrop", number(model.attention_dropout)),
    ])
}
