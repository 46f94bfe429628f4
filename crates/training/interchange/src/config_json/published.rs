//! Models that were published as pickled files: the few numbers that `tools/published_weights.py` writes next to their
//! tensors. All else is of the model, and no file says it.

use config::{Activation, Blocks, ModelSpec, Pairing, Position, RotaryScaling, TopQuery};
use serde_json::{Map, Value};

use super::opt::{OFFSET, PADDING};
use super::{layer_norm, model, number, object, sizes, write_sizes};
use crate::error::InterchangeError;
use crate::fields::Fields;

/// Of all of them.
const EPSILON: f32 = 1e-5;

/// THUDM/GLM-130B, `configs/model_glm_130b.sh`; its paper, section 2.1.
pub(super) fn glm(fields: &Fields) -> Result<ModelSpec, InterchangeError> {
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
pub(super) fn codegeex(fields: &Fields) -> Result<ModelSpec, InterchangeError> {
    Ok(ModelSpec { top_query: TopQuery::On, ..published(fields, Activation::GeluSigmoid)? })
}

/// facebookresearch/metaseq, `transformer_decoder.py`.
pub(super) fn metaseq(fields: &Fields) -> Result<ModelSpec, InterchangeError> {
    let read = published(fields, Activation::Relu)?;
    Ok(ModelSpec { position: Position::Learned { offset: OFFSET }, padding_token: Some(PADDING), ..read })
}

/// EleutherAI/gpt-neox, `configs/20B.yml`.
pub(super) fn gpt_neox(fields: &Fields) -> Result<ModelSpec, InterchangeError> {
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

pub(super) fn write(model: &ModelSpec) -> Map<String, Value> {
    let mut map = write_sizes(model);
    map.extend(object([
        ("hidden_dropout", number(model.dropout)),
        ("attention_dropout", number(model.attention_dropout)),
    ]));
    map
}
