//! `Gemma2ForCausalLM`, and `Gemma3ForCausalLM`, the text model.

use config::{Activation, Biases, Blocks, LocalAttention, ModelSpec, Norm, NormKind, Position, QkNorm};
use serde_json::{Map, Value};

use super::rope::{self, Rotated};
use super::windows::{self, Period, Windows};
use super::{activation, activation_name, model, number, object, padding_token, sizes, write_sizes};
use crate::error::InterchangeError;
use crate::facts::Facts;
use crate::fields::Fields;
use crate::names::{Form::Whole, Names, ShardCopies, common};

pub(crate) const GEMMA2: Facts = Facts {
    class: "Gemma2ForCausalLM",
    model_type: "gemma2",
    prefixes: ["model.", ""],
    names: &NAMES,
    copies: ShardCopies::Alike,
    read: |fields| read(Version::Two, fields),
    write: |model| write(Version::Two, model),
};

pub(crate) const GEMMA3: Facts = Facts {
    class: "Gemma3ForCausalLM",
    model_type: "gemma3_text",
    read: |fields| read(Version::Three, fields),
    write: |model| write(Version::Three, model),
    ..GEMMA2
};

const NAMES: Names = Names {
    layer: "layers",
    of_layer: &[
        common::ATTENTION,
        common::HEAD_NORMS,
        common::FEED_FORWARD,
        &[
            ("attention_norm", "input_layernorm", Whole),
            ("attention_output_norm", "post_attention_layernorm", Whole),
            ("ffn_norm", "pre_feedforward_layernorm", Whole),
            ("ffn_output_norm", "post_feedforward_layernorm", Whole),
        ],
    ],
    others: common::OTHERS,
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    Two,
    Three,
}

impl Version {
    fn windows(self) -> Windows {
        match self {
            Version::Two => Windows::Periods(Period::Of(2)),
            Version::Three => Windows::Periods(Period::InFile("sliding_window_pattern", 6)),
        }
    }
}

/// The library's names of functions of the gate.
const GATES: [(&str, Activation); 4] = [
    ("gelu_pytorch_tanh", Activation::GeGluTanh),
    ("gelu_new", Activation::GeGluTanh),
    ("gelu", Activation::GeGlu),
    ("silu", Activation::SwiGlu),
];

/// Dims of a head, and the number whose square root divides scores, where a file leaves them out.
const HEAD_DIM: usize = 256;

/// Base of the rotary angles of global layers, and of local ones.
const BASES: [f32; 2] = [1_000_000.0, 10_000.0];

fn read(version: Version, fields: &Fields) -> Result<ModelSpec, InterchangeError> {
    fields.only("use_bidirectional_attention", false)?;
    let [attention_soft_cap, logit_soft_cap] = soft_caps(version, fields)?;
    let sizes = sizes(fields)?;
    let [num_layers, hidden, num_heads, _, vocabulary, context] = sizes;
    let head_dim = fields.count_or("head_dim", HEAD_DIM)?;
    let norm = Norm { kind: NormKind::RmsPlusOne, epsilon: fields.number_or("rms_norm_eps", 1e-6)? };
    let (position, local_base) = if version == Version::Two {
        (rope::read(fields, ("rope_theta", BASES[1]), Rotated::All, head_dim, context)?, None)
    } else {
        rotations(fields, head_dim, context)?
    };
    let local_attention = windows::read(version.windows(), fields, num_layers)?;
    let scalar = fields.number_or("query_pre_attn_scalar", HEAD_DIM as f32)?;
    Ok(ModelSpec {
        num_kv_heads: fields.count_or("num_key_value_heads", num_heads)?,
        head_dim,
        local_attention: local_attention.map(|local| LocalAttention { rotary_base: local_base, ..local }),
        activation: activation(fields, &GATES, "hidden_activation", "gelu_pytorch_tanh")?,
        blocks: Blocks::Sandwich,
        biases: if fields.truth_or("attention_bias", false)? { Biases::Attention } else { Biases::Off },
        embedding_scale: Some(embedding_scale(hidden)),
        attention_soft_cap,
        logit_soft_cap,
        query_scalar: (scalar != head_dim as f32).then_some(scalar),
        padding_token: padding_token(fields, vocabulary, Some(0))?,
        qk_norm: if version == Version::Two { QkNorm::Off } else { QkNorm::Heads },
        tied_embeddings: fields.truth_or("tie_word_embeddings", true)?,
        attention_dropout: fields.number_or("attention_dropout", 0.0)?,
        init_std: fields.number_or("initializer_range", 0.02)?,
        ..model(sizes, norm, position)
    })
}

/// In Gemma a row of the table enters the stream with this factor.
fn embedding_scale(hidden: usize) -> f32 {
    (hidden as f64).sqrt() as f32
}

/// Caps of scores and of logits; null means no cap. The library does not cap the scores of Gemma 3.
fn soft_caps(version: Version, fields: &Fields) -> Result<[Option<f32>; 2], InterchangeError> {
    let cap = |key, usual: f32| match (version, fields.map.get(key)) {
        (Version::Two, None) => Ok(Some(usual)),
        (_, None | Some(Value::Null)) => Ok(None),
        (_, Some(_)) => fields.number(key).map(Some),
    };
    if version == Version::Three {
        fields.absent(SCORE_CAP)?;
    }
    Ok([cap(SCORE_CAP, 50.0)?, cap(LOGIT_CAP, 30.0)?])
}

const SCORE_CAP: &str = "attn_logit_softcapping";
const LOGIT_CAP: &str = "final_logit_softcapping";

/// Positions of global layers, and the base of local ones: in newer files an object for each type of layers; in older
/// ones keys of their own.
fn rotations(fields: &Fields, head_dim: usize, context: usize) -> Result<(Position, Option<f32>), InterchangeError> {
    let [global, local] = BASES;
    let read = |fields: &Fields| rope::read(fields, ("rope_theta", global), Rotated::All, head_dim, context);
    let both = fields.object("rope_parameters")?;
    let of_type = |name| both.map_or(Ok(None), |both: Fields| both.object(name));
    let (of_global, of_local) = (of_type("full_attention")?, of_type("sliding_attention")?);
    let position = match of_global {
        None => read(fields)?,
        Some(global) => {
            let map = object([("rope_parameters", global.map.clone().into())]);
            read(&Fields { path: fields.path, map: &map })?
        }
    };
    let base = match of_local {
        None => fields.number_or("rope_local_base_freq", local)?,
        Some(of_local) => {
            of_local.only("rope_type", "default")?;
            of_local.number_or("rope_theta", local)?
        }
    };
    Ok((position, Some(base)))
}

fn write(version: Version, model: &ModelSpec) -> Map<String, Value> {
    let mut map = write_sizes(model);
    map.extend(rope::write("rope_theta", Rotated::All, model));
    map.extend(windows::write(version.windows(), model));
    let local_base = model.local_attention.as_ref().and_then(|local| local.rotary_base);
    map.extend(object([
        ("num_key_value_heads", model.num_kv_heads.into()),
        ("head_dim", model.head_dim.into()),
        ("hidden_activation", activation_name(&GATES, model.activation).into()),
        ("rms_norm_eps", number(model.norm.epsilon)),
        ("attention_dropout", number(model.attention_dropout)),
        ("attention_bias", (model.biases == Biases::Attention).into()),
        ("pad_token_id", model.padding_token.into()),
        ("query_pre_attn_scalar", whole(model.query_scalar.unwrap_or(model.head_dim as f32))),
        (SCORE_CAP, model.attention_soft_cap.map(number).into()),
        (LOGIT_CAP, model.logit_soft_cap.map(number).into()),
    ]));
    if version == Version::Three {
        map.insert("rope_local_base_freq".into(), number(local_base.unwrap_or(BASES[1])));
    }
    map
}

/// A number that the library stores as a whole one, where it is.
fn whole(value: f32) -> Value {
    if value.fract() == 0.0 && value.abs() < 1e9 { (value as i64).into() } else { number(value) }
}
