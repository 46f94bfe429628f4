//! `BloomForCausalLM`. The library limits no sequence of it; `seq_length` is what it was trained with.

use config::{ModelSpec, Position};
use serde_json::{Map, Value};

use super::{layer_norm, model, number, object};
use crate::error::InterchangeError;
use crate::facts::Facts;
use crate::fields::Fields;
use crate::names::{Form::InEachHead, Form::Whole, LM_HEAD, Names, ShardCopies};

pub(crate) const BLOOM: Facts = Facts {
    class: "BloomForCausalLM",
    model_type: "bloom",
    prefixes: ["transformer.", ""],
    names: &NAMES,
    copies: ShardCopies::Alike,
    read,
    write,
};

const NAMES: Names = Names {
    layer: "h",
    of_layer: &[&[
        ("attention_norm", "input_layernorm", Whole),
        ("attention.query", "self_attention.query_key_value", InEachHead(0)),
        ("attention.key", "self_attention.query_key_value", InEachHead(1)),
        ("attention.value", "self_attention.query_key_value", InEachHead(2)),
        ("attention.output", "self_attention.dense", Whole),
        ("ffn_norm", "post_attention_layernorm", Whole),
        ("ffn.up", "mlp.dense_h_to_4h", Whole),
        ("ffn.down", "mlp.dense_4h_to_h", Whole),
    ]],
    others: &[
        ("embedding.token", "word_embeddings", Whole),
        ("embedding.norm", "word_embeddings_layernorm", Whole),
        ("head.norm", "ln_f", Whole),
        LM_HEAD,
    ],
};

fn read(fields: &Fields) -> Result<ModelSpec, InterchangeError> {
    fields.only("apply_residual_connection_post_layernorm", false)?;
    // There the library leaves the biases of maps back into the stream out.
    if fields.count_or("pretraining_tp", 1)? > 1 {
        fields.only("slow_but_exact", false)?;
    }
    let hidden = fields.count_of(["hidden_size", "n_embed"])?;
    let sizes = [
        fields.count_of(["n_layer", "num_hidden_layers"])?,
        hidden,
        fields.count_of(["n_head", "num_attention_heads"])?,
        hidden.saturating_mul(4),
        fields.count("vocab_size")?,
        fields.count_or("seq_length", 2048)?,
    ];
    let norm = layer_norm(fields.number_or("layer_norm_epsilon", 1e-5)?);
    Ok(ModelSpec {
        embedding_norm: true,
        tied_embeddings: fields.truth_or("tie_word_embeddings", true)?,
        dropout: fields.number_or("hidden_dropout", 0.0)?,
        attention_dropout: fields.number_or("attention_dropout", 0.0)?,
        init_std: fields.number_or("initializer_range", 0.02)?,
        ..model(sizes, norm, Position::Alibi)
    })
}

fn write(model: &ModelSpec) -> Map<String, Value> {
    object([
        ("hidden_size", model.hidden.into()),
        ("n_head", model.num_heads.into()),
        ("n_layer", model.num_layers.into()),
        ("vocab_size", model.vocabulary.into()),
        ("seq_length", model.context.into()),
        ("layer_norm_epsilon", number(model.norm.epsilon)),
        ("apply_residual_connection_post_layernorm", false.into()),
        ("hidden_dropout", number(model.dropout)),
        ("attention_dropout", number(model.attention_dropout)),
    ])
}
