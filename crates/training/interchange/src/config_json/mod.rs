//! From `config.json` to a model and back, family by family.

pub(crate) mod bloom;
mod experts;
pub(crate) mod gemma;
pub(crate) mod gpt2;
pub(crate) mod gpt_neox;
pub(crate) mod granite;
pub(crate) mod llama;
pub(crate) mod opt;
pub(crate) mod published;
mod rope;
mod windows;

use config::{Activation, Biases, Blocks, Format, ModelSpec, Norm, NormKind, Position, QkNorm, TopQuery};
use serde_json::{Map, Value};

use crate::error::InterchangeError;
use crate::fields::Fields;

/// The library's name for a format of numbers.
pub fn dtype(format: Format) -> &'static str {
    match format {
        Format::Fp32 => "float32",
        Format::Bf16 => "bfloat16",
        Format::Fp16 => "float16",
    }
}

/// Layers, hidden, heads, feed-forward width, vocabulary and context, under the names that GPT-NeoX and Llama have for
/// them.
fn sizes(fields: &Fields) -> Result<[usize; 6], InterchangeError> {
    Ok([
        fields.count("num_hidden_layers")?,
        fields.count("hidden_size")?,
        fields.count("num_attention_heads")?,
        fields.count("intermediate_size")?,
        fields.count("vocab_size")?,
        fields.count_or("max_position_embeddings", 2048)?,
    ])
}

/// The keys that [`sizes`] reads.
fn write_sizes(model: &ModelSpec) -> Map<String, Value> {
    object([
        ("num_hidden_layers", model.num_layers.into()),
        ("hidden_size", model.hidden.into()),
        ("num_attention_heads", model.num_heads.into()),
        ("intermediate_size", model.ffn_hidden.into()),
        ("vocab_size", model.vocabulary.into()),
        ("max_position_embeddings", model.context.into()),
    ])
}

/// Sizes, norm and positions of a model; the rest as most families have it.
fn model(
    [num_layers, hidden, num_heads, ffn_hidden, vocabulary, context]: [usize; 6],
    norm: Norm,
    position: Position,
) -> ModelSpec {
    ModelSpec {
        num_layers,
        hidden,
        num_heads,
        num_kv_heads: num_heads,
        head_dim: hidden / num_heads.max(1),
        ffn_hidden,
        ffn_hidden_of_layers: None,
        experts: None,
        vocabulary,
        context,
        norm,
        position,
        local_attention: None,
        activation: Activation::GeluTanh,
        blocks: Blocks::Sequential,
        biases: Biases::All,
        embedding_scale: None,
        query_scalar: None,
        attention_soft_cap: None,
        logit_divisor: None,
        logit_soft_cap: None,
        embedding_norm: false,
        tied_embeddings: true,
        padding_token: None,
        top_query: TopQuery::Off,
        qk_norm: QkNorm::Off,
        dropout: 0.0,
        attention_dropout: 0.0,
        init_std: 0.02,
        output_init_std: None,
        xavier_gain: None,
        lora: None,
        z_loss: None,
    }
}

/// The token whose row the class does not train by looking it up; `default` where a file does not say. The library
/// counts negative ones from the end.
fn padding_token(
    fields: &Fields,
    vocabulary: usize,
    default: Option<usize>,
) -> Result<Option<usize>, InterchangeError> {
    const KEY: &str = "pad_token_id";
    let from_start = |token: i64| usize::try_from(if token < 0 { token + vocabulary as i64 } else { token }).ok();
    match fields.map.get(KEY) {
        None => Ok(default),
        Some(Value::Null) => Ok(None),
        Some(value) => match value.as_i64().and_then(from_start).filter(|token| *token < vocabulary) {
            Some(token) => Ok(Some(token)),
            None => Err(fields.refused(KEY, format!("must be below vocab_size = {vocabulary}; use null"))),
        },
    }
}

fn layer_norm(epsilon: f32) -> Norm {
    Norm { kind: NormKind::Layer, epsilon }
}

/// The library's names of functions, the one that is written first.
type Activations = [(&'static str, Activation)];

/// The activations of a block without a gate.
const PLAIN: &Activations = &[
    ("gelu", Activation::GeluErf),
    ("gelu_new", Activation::GeluTanh),
    ("gelu_fast", Activation::GeluTanh),
    ("gelu_pytorch_tanh", Activation::GeluTanh),
    ("quick_gelu", Activation::GeluSigmoid),
    ("relu", Activation::Relu),
];

fn activation(fields: &Fields, among: &Activations, key: &str, default: &str) -> Result<Activation, InterchangeError> {
    let name = fields.text_or(key, "")?;
    let name = if name.is_empty() { default } else { name };
    let known = among.iter().find(|(known, _)| *known == name);
    known.map(|(_, activation)| *activation).ok_or_else(|| {
        let names: Vec<&str> = among.iter().map(|(name, _)| *name).collect();
        fields.refused(key, format!("is not among {}", names.join(", ")))
    })
}

/// The name of `activation`, or the first of those `among` which it is not.
fn activation_name(among: &Activations, activation: Activation) -> &'static str {
    among.iter().find(|(_, known)| *known == activation).map_or(among[0].0, |(name, _)| name)
}

/// A number with the fewest digits that give the same 32 bits again.
pub(crate) fn number(value: f32) -> Value {
    format!("{value:?}").parse::<f64>().unwrap_or(f64::from(value)).into()
}

/// An object of `entries`.
fn object<const N: usize>(entries: [(&str, Value); N]) -> Map<String, Value> {
    entries.into_iter().map(|(key, value)| (key.to_string(), value)).collect()
}
