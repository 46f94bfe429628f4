//! Models that were published as pickled files: the few numbers that `tools/published_weights.py` writes next to their
//! tensors. All else is of the model, and no file says it.

use config::{Activation, Blocks, ModelSpec, Pairing, Position, RotaryScaling, TopQuery};
use serde_json::{Map, Value};

use super::gpt_neox::LAYER;
use super::opt::{OFFSET, PADDING};
use super::{layer_norm, model, number, object, sizes, write_sizes};
use crate::error::InterchangeError;
use crate::facts::Facts;
use crate::fields::Fields;
use crate::names::{Form::Fraction, Form::InEachHead, Form::Whole, Names, ShardCopies};

pub(crate) const GLM: Facts = Facts {
    class: "GLM-130B",
    model_type: "glm-130b",
    prefixes: ["transformer.", ""],
    names: &GLM_NAMES,
    copies: ShardCopies::Alike,
    read: glm,
    write,
};

pub(crate) const CODEGEEX: Facts = Facts {
    class: "CodeGeeX-13B",
    model_type: "codegeex-13b",
    prefixes: ["module.language_model.", "language_model."],
    names: &CODEGEEX_NAMES,
    copies: ShardCopies::Alike,
    read: codegeex,
    write,
};

pub(crate) const METASEQ: Facts = Facts {
    class: "metaseq",
    model_type: "metaseq",
    prefixes: ["decoder.", ""],
    names: &METASEQ_NAMES,
    copies: ShardCopies::Alike,
    read: metaseq,
    write,
};

pub(crate) const GPT_NEOX_SHARDS: Facts = Facts {
    class: "GPT-NeoX-20B",
    model_type: "gpt-neox-20b",
    prefixes: ["", ""],
    names: &GPT_NEOX_NAMES,
    copies: ShardCopies::Drifted,
    read: gpt_neox,
    write,
};

/// GLM-130B (THUDM/SwissArmyTransformer, `glm130B_model.py`): of the two halves of the first map, the second is the
/// gate.
const GLM_NAMES: Names = Names {
    layer: "layers",
    of_layer: &[&[
        ("attention_norm", "input_layernorm", Whole),
        ("attention.query", "attention.query_key_value", InEachHead(0)),
        ("attention.key", "attention.query_key_value", InEachHead(1)),
        ("attention.value", "attention.query_key_value", InEachHead(2)),
        ("attention.output", "attention.dense", Whole),
        ("ffn_norm", "post_attention_layernorm", Whole),
        ("ffn.gate", "mlp.dense_h_to_4h", Fraction(1, 2)),
        ("ffn.up", "mlp.dense_h_to_4h", Fraction(0, 2)),
        ("ffn.down", "mlp.dense_4h_to_h", Whole),
    ]],
    others: &[("embedding.token", "word_embeddings", Whole), ("head.norm", "final_layernorm", Whole)],
};

/// CodeGeeX (THUDM/CodeGeeX, `mindspore_to_megatron.py`).
const CODEGEEX_NAMES: Names = Names {
    layer: "transformer.layers",
    of_layer: &[&[
        ("attention_norm", "input_layernorm", Whole),
        ("attention.query", "attention.query", Whole),
        ("attention.key", "attention.key", Whole),
        ("attention.value", "attention.value", Whole),
        ("attention.output", "attention.dense", Whole),
        ("ffn_norm", "post_attention_layernorm", Whole),
        ("ffn.up", "mlp.dense_h_to_4h", Whole),
        ("ffn.down", "mlp.dense_4h_to_h", Whole),
    ]],
    others: &[
        ("embedding.token", "embedding.word_embeddings", Whole),
        ("embedding.position", "embedding.position_embeddings", Whole),
        ("head.norm", "transformer.final_layernorm", Whole),
        ("top_query.position", "topQueryEmbedding.top_query_embeddings", Whole),
    ],
};

/// OPT in the files of metaseq (`multihead_attention.py`): each shard has its keys, its values, its queries, in this
/// order.
const METASEQ_NAMES: Names = Names {
    layer: "layers",
    of_layer: &[&[
        ("attention_norm", "self_attn_layer_norm", Whole),
        ("attention.query", "self_attn.qkv_proj", Fraction(2, 3)),
        ("attention.key", "self_attn.qkv_proj", Fraction(0, 3)),
        ("attention.value", "self_attn.qkv_proj", Fraction(1, 3)),
        ("attention.output", "self_attn.out_proj", Whole),
        ("ffn_norm", "final_layer_norm", Whole),
        ("ffn.up", "fc1", Whole),
        ("ffn.down", "fc2", Whole),
    ]],
    others: &[
        ("embedding.token", "embed_tokens", Whole),
        ("embedding.position", "embed_positions", Whole),
        ("head.norm", "layer_norm", Whole),
    ],
};

/// GPT-NeoX-20B as it was trained (EleutherAI/gpt-neox, `tools/ckpts/merge20b.py`).
const GPT_NEOX_NAMES: Names = Names {
    layer: "layers",
    of_layer: &[LAYER],
    others: &[
        ("embedding.token", "word_embeddings", Whole),
        ("head.norm", "norm", Whole),
        ("head.output", "final_linear", Whole),
    ],
};

/// Of all of them.
const EPSILON: f32 = 1e-5;

/// THUDM/GLM-130B, `configs/model_glm_130b.sh`; its paper, section 2.1.
fn glm(fields: &Fields) -> Result<ModelSpec, InterchangeError> {
    let read = published(fields, Activation::GeGlu)?;
    Ok(ModelSpec {
        position: Position::Rotary {
            base: 10_000.0,
            rotary_dims: read.head_dim,
            pairing: Pairing::Half,
            scaling: RotaryScaling::Off,
        },
        blocks: Blocks::DeepNorm { alpha: (2.0 * read.num_layers as f64).sqrt() as f32 },
        ..read
    })
}

/// THUDM/CodeGeeX, `codegeex_model.py`.
fn codegeex(fields: &Fields) -> Result<ModelSpec, InterchangeError> {
    Ok(ModelSpec { top_query: TopQuery::On, ..published(fields, Activation::GeluSigmoid)? })
}

/// facebookresearch/metaseq, `transformer_decoder.py`.
fn metaseq(fields: &Fields) -> Result<ModelSpec, InterchangeError> {
    let read = published(fields, Activation::Relu)?;
    Ok(ModelSpec { position: Position::Learned { offset: OFFSET }, padding_token: Some(PADDING), ..read })
}

/// EleutherAI/gpt-neox, `configs/20B.yml`.
fn gpt_neox(fields: &Fields) -> Result<ModelSpec, InterchangeError> {
    let read = published(fields, Activation::GeluTanh)?;
    Ok(ModelSpec {
        position: Position::Rotary {
            base: 10_000.0,
            rotary_dims: read.head_dim / 4,
            pairing: Pairing::Half,
            scaling: RotaryScaling::Off,
        },
        blocks: Blocks::Parallel,
        tied_embeddings: false,
        ..read
    })
}

fn published(fields: &Fields, activation: Activation) -> Result<ModelSpec, InterchangeError> {
    Ok(ModelSpec {
        activation,
        dropout: fields.number_or("hidden_dropout", 0.0)?,
        attention_dropout: fields.number_or("attention_dropout", 0.0)?,
        init_std: fields.number_or("initializer_range", 0.02)?,
        ..model(sizes(fields)?, layer_norm(EPSILON), Position::Learned { offset: 0 })
    })
}

fn write(model: &ModelSpec) -> Map<String, Value> {
    let mut map = write_sizes(model);
    map.extend(object([
        ("hidden_dropout", number(model.dropout)),
        ("attention_dropout", number(model.attention_dropout)),
    ]));
    map
}
