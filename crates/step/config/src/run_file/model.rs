//! The section `[model]`.

use super::local_attention;
use super::lora;
use super::reader::{Choices, Reader, name_of};
use super::writer::Writer;
use crate::model::{Activation, Biases, Blocks, ModelSpec, Norm, NormKind, Pairing, Position, QkNorm, TopQuery};
use crate::problem::Problem;
use crate::rotary_scaling::RotaryScaling;

const NORMS: &Choices<NormKind> =
    &[("layer", NormKind::Layer), ("rms", NormKind::Rms), ("rms_plus_one", NormKind::RmsPlusOne)];
const PAIRINGS: &Choices<Pairing> = &[("half", Pairing::Half), ("interleaved", Pairing::Interleaved)];
const ACTIVATIONS: &Choices<Activation> = &[
    ("gelu_tanh", Activation::GeluTanh),
    ("gelu_erf", Activation::GeluErf),
    ("gelu_sigmoid", Activation::GeluSigmoid),
    ("relu", Activation::Relu),
    ("swiglu", Activation::SwiGlu),
    ("geglu", Activation::GeGlu),
    ("geglu_tanh", Activation::GeGluTanh),
];

const QK_NORMS: &Choices<QkNorm> = &[("true", QkNorm::Heads), ("false", QkNorm::Off), ("whole", QkNorm::Whole)];

const BIASES: &Choices<Biases> = &[
    ("true", Biases::All),
    ("false", Biases::Off),
    ("qkv", Biases::QueryKeyValue),
    ("attention", Biases::Attention),
    ("ffn", Biases::FeedForward),
];

#[derive(Clone, Copy, PartialEq)]
enum ScalingKind {
    Off,
    Linear,
    Llama3,
    Yarn,
}

const SCALINGS: &Choices<ScalingKind> = &[
    ("none", ScalingKind::Off),
    ("linear", ScalingKind::Linear),
    ("llama3", ScalingKind::Llama3),
    ("yarn", ScalingKind::Yarn),
];

#[derive(Clone, Copy, PartialEq)]
enum PositionKind {
    Learned,
    Rotary,
    Alibi,
}

const POSITIONS: &Choices<PositionKind> =
    &[("learned", PositionKind::Learned), ("rotary", PositionKind::Rotary), ("alibi", PositionKind::Alibi)];

#[derive(Clone, Copy, PartialEq)]
enum BlocksKind {
    Sequential,
    Parallel,
    PostNorm,
    Sandwich,
    DeepNorm,
}

const BLOCKS: &Choices<BlocksKind> = &[
    ("sequential", BlocksKind::Sequential),
    ("parallel", BlocksKind::Parallel),
    ("postnorm", BlocksKind::PostNorm),
    ("sandwich", BlocksKind::Sandwich),
    ("deepnorm", BlocksKind::DeepNorm),
];

/// Reads the section; `tokens` is the number of different tokens in the data, the default of the vocabulary.
pub fn read(reader: &mut Reader, tokens: usize) -> ModelSpec {
    let hidden = reader.count("model.hidden", 128);
    let num_heads = reader.count("model.num_heads", 4);
    let head_dim = head_dim(reader, hidden, num_heads);
    let norm = Norm {
        kind: reader.choice("model.norm", NORMS, NormKind::Layer),
        epsilon: reader.number("model.norm_epsilon", 1e-5),
    };
    let position = position(reader, head_dim);
    let dropout = reader.number("model.dropout", 0.0);
    let num_layers = reader.count("model.num_layers", 6);
    ModelSpec {
        num_layers,
        hidden,
        num_heads,
        num_kv_heads: reader.count("model.num_kv_heads", num_heads),
        head_dim,
        ffn_hidden: reader.count("model.ffn_hidden", 4 * hidden),
        ffn_hidden_of_layers: reader.optional_counts("model.ffn_hidden_of_layers"),
        vocabulary: reader.count("model.vocabulary", tokens),
        context: reader.count("model.context", 128),
        norm,
        position,
        local_attention: local_attention::read(reader, num_layers),
        activation: reader.choice("model.activation", ACTIVATIONS, Activation::GeluTanh),
        blocks: blocks(reader, num_layers),
        biases: reader.choice("model.biases", BIASES, Biases::All),
        embedding_scale: reader.optional_number("model.embedding_scale"),
        query_scalar: reader.optional_number("model.query_scalar"),
        attention_soft_cap: reader.optional_number("model.attention_soft_cap"),
        logit_soft_cap: reader.optional_number("model.logit_soft_cap"),
        embedding_norm: reader.yes_no("model.embedding_norm", false),
        tied_embeddings: reader.yes_no("model.tied_embeddings", true),
        padding_token: reader.optional_count("model.padding_token"),
        top_query: match reader.yes_no("model.top_query", false) {
            true => TopQuery::On,
            false => TopQuery::Off,
        },
        qk_norm: reader.choice("model.qk_norm", QK_NORMS, QkNorm::Off),
        dropout,
        attention_dropout: reader.number("model.attention_dropout", dropout),
        init_std: reader.number("model.init_std", 0.02),
        output_init_std: reader.optional_number("model.output_init_std"),
        xavier_gain: xavier_gain(reader),
        lora: lora::read(reader),
        z_loss: reader.optional_number("model.z_loss").filter(|coefficient| *coefficient != 0.0),
    }
}

/// Of maps in layers, in place of the standard deviation of those back into the stream.
fn xavier_gain(reader: &mut Reader) -> Option<f32> {
    let gain = reader.optional_number("model.xavier_gain")?;
    if reader.is_set("model.output_init_std") {
        let rule = "conflicts with model.xavier_gain";
        reader.report(Problem::of_key("model.output_init_std", rule, "remove one of them"));
    }
    Some(gain)
}

/// DeepNorm's weight of the stream is by default that of its paper for a decoder: the square root of twice the layers.
fn blocks(reader: &mut Reader, num_layers: usize) -> Blocks {
    let kind = reader.choice("model.blocks", BLOCKS, BlocksKind::Sequential);
    let alpha = reader.number("model.deepnorm_alpha", (2.0 * num_layers as f64).sqrt() as f32);
    if kind != BlocksKind::DeepNorm {
        only_with(reader, &["model.deepnorm_alpha"], ("model.blocks", name_of(BLOCKS, kind)), "deepnorm");
    }
    match kind {
        BlocksKind::Sequential => Blocks::Sequential,
        BlocksKind::Parallel => Blocks::Parallel,
        BlocksKind::PostNorm => Blocks::PostNorm,
        BlocksKind::Sandwich => Blocks::Sandwich,
        BlocksKind::DeepNorm => Blocks::DeepNorm { alpha },
    }
}

/// Reports those of `keys` that are set although `key` has another value than the one that gives them a meaning.
fn only_with(reader: &mut Reader, keys: &[&str], (key, value): (&str, &str), needed: &str) {
    for set in keys {
        if reader.is_set(set) {
            let remedy = format!("write {key} = {needed:?}, or leave it out");
            reader.report(Problem::of_key(set, format!("has no effect where {key} = {value:?}"), remedy));
        }
    }
}

fn head_dim(reader: &mut Reader, hidden: usize, num_heads: usize) -> usize {
    if let Some(head_dim) = reader.optional_count("model.head_dim") {
        return head_dim;
    }
    // No heads at all is a problem of its own, which `check` names.
    let heads = num_heads.max(1);
    if !hidden.is_multiple_of(heads) {
        let below = hidden / heads * heads;
        let multiples: Vec<usize> = [below, below + heads].into_iter().filter(|multiple| *multiple > 0).collect();
        let remedy = format!("use {}, or give model.head_dim", mesh::alternatives(&multiples));
        reader.report(Problem::of_value(
            "model.hidden",
            hidden,
            format!("must be a multiple of model.num_heads = {heads}"),
            remedy,
        ));
    }
    (hidden / heads).max(1)
}

fn position(reader: &mut Reader, head_dim: usize) -> Position {
    let kind = reader.choice("model.position", POSITIONS, PositionKind::Learned);
    let base = reader.number("model.rotary_base", 10_000.0);
    let fraction = reader.number("model.rotary_fraction", 1.0);
    let pairing = reader.choice("model.rotary_pairing", PAIRINGS, Pairing::Half);
    let scaling = rotary_scaling(reader);
    let offset = reader.count("model.position_offset", 0);
    let written = ("model.position", name_of(POSITIONS, kind));
    if kind != PositionKind::Rotary {
        let keys = ["model.rotary_base", "model.rotary_fraction", "model.rotary_pairing", "model.rotary_scaling"];
        only_with(reader, &keys, written, "rotary");
    }
    if kind != PositionKind::Learned {
        only_with(reader, &["model.position_offset"], written, "learned");
    }
    match kind {
        PositionKind::Learned => Position::Learned { offset },
        PositionKind::Alibi => Position::Alibi,
        PositionKind::Rotary => {
            if !(fraction > 0.0 && fraction <= 1.0) {
                // One verdict is enough: whole pairs are not asked for as well.
                reader.unusable.insert("model.rotary_fraction".into());
                let rule = "must be a share of the head's dims";
                reader.report(Problem::of_value(
                    "model.rotary_fraction",
                    fraction,
                    rule,
                    "use more than 0 and at most 1",
                ));
            }
            let rotary_dims = (f64::from(fraction) * head_dim as f64).round() as usize;
            Position::Rotary { base, rotary_dims, pairing, scaling }
        }
    }
}

/// The defaults of its numbers are those of Llama 3.1, and those of the paper of YaRN.
fn rotary_scaling(reader: &mut Reader) -> RotaryScaling {
    let kind = reader.choice("model.rotary_scaling", SCALINGS, ScalingKind::Off);
    let factor = reader.number("model.rotary_scaling_factor", 8.0);
    let low_turns = reader.number("model.rotary_low_turns", 1.0);
    let fast = if kind == ScalingKind::Yarn { 32.0 } else { 4.0 };
    let high_turns = reader.number("model.rotary_high_turns", fast);
    let original_context = reader.count("model.rotary_original_context", 8192);
    let magnitude = reader.number("model.rotary_magnitude", RotaryScaling::fitted_magnitude(factor));
    let written = ("model.rotary_scaling", name_of(SCALINGS, kind));
    if kind != ScalingKind::Yarn {
        only_with(reader, &["model.rotary_magnitude"], written, "yarn");
    }
    let of_llama = ["model.rotary_low_turns", "model.rotary_high_turns", "model.rotary_original_context"];
    match kind {
        ScalingKind::Off => {
            only_with(reader, &["model.rotary_scaling_factor"], written, "linear");
            only_with(reader, &of_llama, written, "llama3");
            RotaryScaling::Off
        }
        ScalingKind::Linear => {
            only_with(reader, &of_llama, written, "llama3");
            RotaryScaling::Linear { factor }
        }
        ScalingKind::Llama3 => RotaryScaling::Llama3 { factor, low_turns, high_turns, original_context },
        ScalingKind::Yarn => RotaryScaling::Yarn { factor, low_turns, high_turns, original_context, magnitude },
    }
}

/// Writes the section, every key that has a meaning for this model.
pub fn write(model: &ModelSpec, writer: &mut Writer) {
    writer.section("model");
    writer.count("num_layers", model.num_layers);
    writer.count("hidden", model.hidden);
    writer.count("num_heads", model.num_heads);
    writer.count("num_kv_heads", model.num_kv_heads);
    writer.count("head_dim", model.head_dim);
    writer.count("ffn_hidden", model.ffn_hidden);
    if let Some(widths) = &model.ffn_hidden_of_layers {
        writer.bare("ffn_hidden_of_layers", &format!("{widths:?}"));
    }
    writer.count("vocabulary", model.vocabulary);
    writer.count("context", model.context);
    writer.text("norm", name_of(NORMS, model.norm.kind));
    writer.number("norm_epsilon", model.norm.epsilon);
    match model.position {
        Position::Learned { offset } => {
            writer.text("position", name_of(POSITIONS, PositionKind::Learned));
            writer.count("position_offset", offset);
        }
        Position::Alibi => writer.text("position", name_of(POSITIONS, PositionKind::Alibi)),
        Position::Rotary { base, rotary_dims, pairing, scaling } => {
            writer.text("position", name_of(POSITIONS, PositionKind::Rotary));
            writer.number("rotary_base", base);
            writer.number("rotary_fraction", (rotary_dims as f64 / model.head_dim as f64) as f32);
            writer.text("rotary_pairing", name_of(PAIRINGS, pairing));
            write_scaling(scaling, writer);
        }
    }
    local_attention::write(model.local_attention.as_ref(), writer);
    writer.text("activation", name_of(ACTIVATIONS, model.activation));
    match model.blocks {
        Blocks::Sequential => writer.text("blocks", name_of(BLOCKS, BlocksKind::Sequential)),
        Blocks::Parallel => writer.text("blocks", name_of(BLOCKS, BlocksKind::Parallel)),
        Blocks::PostNorm => writer.text("blocks", name_of(BLOCKS, BlocksKind::PostNorm)),
        Blocks::Sandwich => writer.text("blocks", name_of(BLOCKS, BlocksKind::Sandwich)),
        Blocks::DeepNorm { alpha } => {
            writer.text("blocks", name_of(BLOCKS, BlocksKind::DeepNorm));
            writer.number("deepnorm_alpha", alpha);
        }
    }
    match model.biases {
        Biases::All | Biases::Off => writer.bare("biases", name_of(BIASES, model.biases)),
        Biases::QueryKeyValue | Biases::Attention | Biases::FeedForward => {
            writer.text("biases", name_of(BIASES, model.biases))
        }
    }
    write_scales(model, writer);
    writer.yes_no("embedding_norm", model.embedding_norm);
    writer.yes_no("tied_embeddings", model.tied_embeddings);
    if let Some(token) = model.padding_token {
        writer.count("padding_token", token);
    }
    writer.yes_no("top_query", model.top_query == TopQuery::On);
    match model.qk_norm {
        QkNorm::Off | QkNorm::Heads => writer.bare("qk_norm", name_of(QK_NORMS, model.qk_norm)),
        QkNorm::Whole => writer.text("qk_norm", name_of(QK_NORMS, model.qk_norm)),
    }
    writer.number("dropout", model.dropout);
    writer.number("attention_dropout", model.attention_dropout);
    writer.number("init_std", model.init_std);
    if let Some(std) = model.output_init_std {
        writer.number("output_init_std", std);
    }
    if let Some(gain) = model.xavier_gain {
        writer.number("xavier_gain", gain);
    }
    if let Some(own) = &model.lora {
        writer.bare("lora", &lora::written(own));
    }
    if let Some(coefficient) = model.z_loss {
        writer.number("z_loss", coefficient);
    }
}

/// Factors and caps of embeddings, scores and logits.
fn write_scales(model: &ModelSpec, writer: &mut Writer) {
    let scales = [
        ("embedding_scale", model.embedding_scale),
        ("query_scalar", model.query_scalar),
        ("attention_soft_cap", model.attention_soft_cap),
        ("logit_soft_cap", model.logit_soft_cap),
    ];
    for (key, value) in scales.into_iter().filter_map(|(key, value)| Some((key, value?))) {
        writer.number(key, value);
    }
}

fn write_scaling(scaling: RotaryScaling, writer: &mut Writer) {
    let kind = match scaling {
        RotaryScaling::Off => ScalingKind::Off,
        RotaryScaling::Linear { .. } => ScalingKind::Linear,
        RotaryScaling::Llama3 { .. } => ScalingKind::Llama3,
        RotaryScaling::Yarn { .. } => ScalingKind::Yarn,
    };
    writer.text("rotary_scaling", name_of(SCALINGS, kind));
    match scaling {
        RotaryScaling::Off => {}
        RotaryScaling::Linear { factor } => writer.number("rotary_scaling_factor", factor),
        RotaryScaling::Llama3 { factor, low_turns, high_turns, original_context }
        | RotaryScaling::Yarn { factor, low_turns, high_turns, original_context, .. } => {
            writer.number("rotary_scaling_factor", factor);
            writer.number("rotary_low_turns", low_turns);
            writer.number("rotary_high_turns", high_turns);
            writer.count("rotary_original_context", original_context);
        }
    }
    if let RotaryScaling::Yarn { magnitude, .. } = scaling {
        writer.number("rotary_magnitude", magnitude);
    }
}
