//! Rules of `[model]`, and of the text that it reads.

use super::{Rules, nearest_of};
use crate::local_attention::{LocalAttention, MAX_PATTERN, Reach};
use crate::model::{MAX_DROPOUT_HEADS, MAX_DROPOUT_KEYS, MAX_HEAD_DIM, ModelSpec, Position};
use crate::run_file::{Item as _, MAX_WIDTH, RunConfig};

pub(super) fn check(config: &RunConfig, rules: &mut Rules) {
    let model = &config.model;
    feed_forward_widths(model, rules);
    let sizes = [model.num_layers, model.hidden, model.num_heads, model.num_kv_heads];
    if !sizes.contains(&0) && ![model.head_dim, model.ffn_hidden, model.vocabulary, model.context].contains(&0) {
        positive_sizes(config, rules);
        dropout_coordinates(config, rules);
    }
    rotary_pairs(model, rules);
    local_attention(model, rules);
    refuse! { rules;
        config.data.sources.iter().any(|source| source.path.as_os_str().is_empty()) => "data.path" = "\"\"",
            "names no file", "leave it out for the embedded corpus";
    }
}

/// One width for each layer.
fn feed_forward_widths(model: &ModelSpec, rules: &mut Rules) {
    let (Some(widths), layers) = (&model.ffn_hidden_of_layers, model.num_layers) else { return };
    refuse! { rules;
        widths.len() != layers => "model.ffn_hidden_of_layers" = widths.written(), format!(
            "must have a width for each of model.num_layers = {layers} layers; got {}", widths.len()
        ), "leave it out for layers of equal width";
        widths.contains(&0) => "model.ffn_hidden_of_layers" = widths.written(),
            "must be positive", "use at least 1 for each layer";
        widths.iter().any(|width| *width > MAX_WIDTH) => "model.ffn_hidden_of_layers" = widths.written(),
            format!("must be at most {MAX_WIDTH}"), "use smaller widths";
    }
}

/// Rules between the sizes of a model, which are positive.
fn positive_sizes(config: &RunConfig, rules: &mut Rules) {
    let model = &config.model;
    let ModelSpec { hidden, num_heads: heads, num_kv_heads: kv_heads, head_dim, vocabulary, .. } = *model;
    let tokens = config.data.tokenizer.vocabulary().unwrap_or(0);
    let padding = model.padding_token.unwrap_or(0);
    let columns = heads.saturating_mul(head_dim);
    let fit = |heads: &usize| hidden / heads <= MAX_HEAD_DIM;
    refuse! { rules;
        !heads.is_multiple_of(kv_heads) => "model.num_kv_heads" = kv_heads,
            format!("must divide model.num_heads = {heads}"),
            format!("use {}", nearest_of(&mesh::divisors(heads), kv_heads, 8));
        vocabulary < tokens => "model.vocabulary" = vocabulary,
            format!("is less than the {tokens} tokens of data.tokenizer"), format!("use at least {tokens}");
        padding >= vocabulary => "model.padding_token" = padding,
            format!("must be below model.vocabulary = {vocabulary}"),
            format!("use at most {}, or leave it out", vocabulary - 1);
        head_dim > MAX_HEAD_DIM => "model.head_dim" = head_dim, "is wider than an attention head can be",
            // Where the width of heads follows from their number, that is what to change.
            match mesh::divisors(hidden).into_iter().find(fit).filter(|_| head_dim == hidden / heads) {
                Some(heads) => format!(
                    "use model.num_heads = {heads} ({} each) or more, or a smaller model.head_dim", hidden / heads
                ),
                None => format!("use at most {MAX_HEAD_DIM}"),
            };
        columns > MAX_WIDTH && heads <= MAX_WIDTH && head_dim <= MAX_WIDTH => "model.head_dim" = head_dim,
            format!("times model.num_heads = {heads} is {columns} columns, more than {MAX_WIDTH}"), "";
    }
}

/// Sizes for which dropout has no random numbers.
fn dropout_coordinates(config: &RunConfig, rules: &mut Rules) {
    let model = &config.model;
    if model.attention_dropout == 0.0 {
        return;
    }
    let limits = [
        ("train.sequence_length", config.train.sequence_length, MAX_DROPOUT_KEYS),
        ("model.num_heads", model.num_heads, MAX_DROPOUT_HEADS),
    ];
    for (key, value, limit) in limits {
        refuse! { rules;
            value > limit => key = value, "is more than model.attention_dropout can distinguish",
                format!("use at most {limit}, or model.attention_dropout = 0");
        }
    }
}

/// A share outside (0, 1] is refused where it is read; here only whole pairs matter.
fn rotary_pairs(model: &ModelSpec, rules: &mut Rules) {
    let (Position::Rotary { rotary_dims: dims, .. }, head_dim) = (model.position, model.head_dim) else { return };
    refuse! { rules;
        dims == 0 || !dims.is_multiple_of(2) || dims > head_dim => "model.rotary_fraction" = format!(
            "{:?}", (dims as f64 / head_dim.max(1) as f64) as f32
        ), format!("must rotate whole pairs of dims; got {dims} of model.head_dim = {head_dim}"),
            even_shares(dims, head_dim);
    }
}

fn local_attention(model: &ModelSpec, rules: &mut Rules) {
    let Some(LocalAttention { pattern, rotary_base, .. }) = &model.local_attention else { return };
    let (length, is_rotary) = (pattern.len(), matches!(model.position, Position::Rotary { .. }));
    refuse! { rules;
        length > MAX_PATTERN => "model.layer_pattern", format!("has {length} layers, more than {MAX_PATTERN}"),
            "use a shorter pattern";
        length <= MAX_PATTERN && !pattern.contains(&Reach::Local) => "model.layer_pattern",
            "has no local layer for model.window", "add one, or leave out model.window";
        rotary_base.is_some() && !is_rotary => "model.local_rotary_base",
            "has no effect without model.position = \"rotary\"", "leave it out";
    }
}

fn even_shares(rotary_dims: usize, head_dim: usize) -> String {
    let below = (rotary_dims / 2 * 2).min(head_dim / 2 * 2);
    let even: Vec<usize> = [below, below + 2].into_iter().filter(|dims| *dims > 0 && *dims <= head_dim).collect();
    let shares: Vec<String> =
        even.iter().map(|dims| format!("{} ({dims} dims)", *dims as f32 / head_dim as f32)).collect();
    match shares.as_slice() {
        [] => "use an even model.head_dim".into(),
        shares => format!("use {}", shares.join(" or ")),
    }
}
