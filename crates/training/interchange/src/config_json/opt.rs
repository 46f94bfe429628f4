//! `OPTForCausalLM`, all sizes but that of 350 million, whose norms are after the blocks. Its position table begins
//! with two rows that no token reads.

use config::{Biases, ModelSpec, Position};
use serde_json::{Map, Value};

use super::{PLAIN, activation, activation_name, layer_norm, model, number, object, padding_token};
use crate::error::InterchangeError;
use crate::facts::Facts;
use crate::fields::Fields;
use crate::names::{Form::Whole, LM_HEAD, Names, ShardCopies};

pub(crate) const OPT: Facts = Facts {
    class: "OPTForCausalLM",
    model_type: "opt",
    prefixes: ["model.decoder.", "decoder."],
    names: &NAMES,
    copies: ShardCopies::Alike,
    read,
    write,
};

const NAMES: Names = Names {
    layer: "layers",
    of_layer: &[&[
        ("attention_norm", "self_attn_layer_norm", Whole),
        ("attention.query", "self_attn.q_proj", Whole),
        ("attention.key", "self_attn.k_proj", Whole),
        ("attention.value", "self_attn.v_proj", Whole),
        ("attention.output", "self_attn.out_proj", Whole),
        ("ffn_norm", "final_layer_norm", Whole),
        ("ffn.up", "fc1", Whole),
        ("ffn.down", "fc2", Whole),
    ]],
    others: &[
        ("embedding.token", "embed_tokens", Whole),
        ("embedding.position", "embed_positions", Whole),
        ("head.norm", "final_layer_norm", Whole),
        LM_HEAD,
    ],
};

/// Of the class; no configuration changes them.
pub(super) const OFFSET: usize = 2;
const EPSILON: f32 = 1e-5;
/// The padding token where a file does not say.
pub(super) const PADDING: usize = 1;

fn read(fields: &Fields) -> Result<ModelSpec, InterchangeError> {
    fields.only("do_layer_norm_before", true)?;
    fields.only("layer_norm_elementwise_affine", true)?;
    fields.only("_remove_final_layer_norm", false)?;
    let hidden = fields.count("hidden_size")?;
    fields.only("word_embed_proj_dim", hidden)?;
    let sizes = [
        fields.count("num_hidden_layers")?,
        hidden,
        fields.count("num_attention_heads")?,
        fields.count("ffn_dim")?,
        fields.count("vocab_size")?,
        fields.count_or("max_position_embeddings", 2048)?,
    ];
    Ok(ModelSpec {
        activation: activation(fields, PLAIN, "activation_function", "relu")?,
        biases: if fields.truth_or("enable_bias", true)? { Biases::All } else { Biases::Off },
        padding_token: padding_token(fields, sizes[4], Some(PADDING))?,
        tied_embeddings: fields.truth_or("tie_word_embeddings", true)?,
        dropout: fields.number_or("dropout", 0.1)?,
        attention_dropout: fields.number_or("attention_dropout", 0.0)?,
        init_std: fields.number_or("init_std", 0.02)?,
        ..model(sizes, layer_norm(EPSILON), Position::Learned { offset: OFFSET })
    })
}

fn write(model: &ModelSpec) -> Map<String, Value> {
    object([
        ("hidden_size", model.hidden.into()),
        ("word_embed_proj_dim", model.hidden.into()),
        ("num_attention_heads", model.num_heads.into()),
        ("num_hidden_layers", model.num_layers.into()),
        ("ffn_dim", model.ffn_hidden.into()),
        ("vocab_size", model.vocabulary.into()),
        ("max_position_embeddings", model.context.into()),
        ("activation_function", activation_name(PLAIN, model.activation).into()),
        ("do_layer_norm_before", true.into()),
        ("enable_bias", (model.biases == Biases::All).into()),
        ("pad_token_id", model.padding_token.into()),
        ("init_std", number(model.init_std)),
        ("dropout", number(model.dropout)),
        ("attention_dropout", number(model.attention_dropout)),
    ])
}
