//! Rules of `[model]`, and of the text that it reads.

use super::{Rules, nearest_of};
use crate::local_attention::{LocalAttention, MAX_PATTERN, Reach};
use crate::model::{MAX_DROPOUT_HEADS, MAX_DROPOUT_KEYS, MAX_HEAD_DIM, ModelSpec, Position};
use crate::problem::Problem;
use crate::run_file::{MAX_WIDTH, RunConfig};

pub(super) fn check(config: &RunConfig, rules: &mut Rules) {
    let model = &config.model;
    feed_forward_widths(model, rules);
    let sizes = [model.num_layers, model.hidden, model.num_heads, model.num_kv_heads];
    if !sizes.contains(&0) && ![model.head_dim, model.ffn_hidden, model.vocabulary, model.context].contains(&0) {
        key_value_heads(model, rules);
        vocabulary(config, rules);
        padding_token(model, rules);
        head_width(model, rules);
        dropout_coordinates(config, rules);
    }
    rotary_pairs(model, rules);
    local_attention(model, rules);
    paths(config, rules);
}

/// One width for each layer.
fn feed_forward_widths(model: &ModelSpec, rules: &mut Rules) {
    const KEY: &str = "model.ffn_hidden_of_layers";
    let Some(widths) = &model.ffn_hidden_of_layers else { return };
    let mut refuse = |rule: String, remedy: String| {
        rules.report(Problem::of_value(KEY, format!("{widths:?}"), rule, remedy));
    };
    if widths.len() != model.num_layers {
        let rule = format!("must have a width for each of model.num_layers = {} layers", model.num_layers);
        refuse(format!("{rule}; got {}", widths.len()), "leave it out for layers of equal width".into());
    }
    if widths.contains(&0) {
        refuse("must be positive".into(), "use at least 1 for each layer".into());
    }
    if widths.iter().any(|width| *width > MAX_WIDTH) {
        refuse(format!("must be at most {MAX_WIDTH}"), "use smaller widths".into());
    }
}

fn key_value_heads(model: &ModelSpec, rules: &mut Rules) {
    if !model.num_heads.is_multiple_of(model.num_kv_heads) {
        let rule = format!("must divide model.num_heads = {}", model.num_heads);
        let remedy = format!("use {}", nearest_of(&mesh::divisors(model.num_heads), model.num_kv_heads, 8));
        rules.report(Problem::of_value("model.num_kv_heads", model.num_kv_heads, rule, remedy));
    }
}

fn head_width(model: &ModelSpec, rules: &mut Rules) {
    let (hidden, head_dim) = (model.hidden, model.head_dim);
    if head_dim > MAX_HEAD_DIM {
        // Where the width follows from the number of heads, that is what to change.
        let follows = head_dim == hidden / model.num_heads;
        let more_heads = mesh::divisors(hidden).into_iter().find(|heads| hidden / heads <= MAX_HEAD_DIM);
        let remedy = match more_heads.filter(|_| follows) {
            Some(heads) => {
                format!("use model.num_heads = {heads} ({} each) or more, or a smaller model.head_dim", hidden / heads)
            }
            None => format!("use at most {MAX_HEAD_DIM}"),
        };
        rules.report(Problem::of_value("model.head_dim", head_dim, "is wider than an attention head can be", remedy));
    }
    let columns = model.num_heads.saturating_mul(head_dim);
    if columns > MAX_WIDTH && model.num_heads <= MAX_WIDTH && head_dim <= MAX_WIDTH {
        let rule = format!("times model.num_heads = {} is {columns} columns, more than {MAX_WIDTH}", model.num_heads);
        rules.report(Problem::of_value("model.head_dim", head_dim, rule, ""));
    }
}

fn vocabulary(config: &RunConfig, rules: &mut Rules) {
    let Some(tokens) = config.data.tokenizer.vocabulary() else { return };
    if config.model.vocabulary < tokens {
        let rule = format!("is less than the {tokens} tokens of data.tokenizer");
        let remedy = format!("use at least {tokens}");
        rules.report(Problem::of_value("model.vocabulary", config.model.vocabulary, rule, remedy));
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
    for (key, value, limit) in limits.into_iter().filter(|(_, value, limit)| value > limit) {
        let rule = "is more than model.attention_dropout can distinguish";
        let remedy = format!("use at most {limit}, or model.attention_dropout = 0");
        rules.report(Problem::of_value(key, value, rule, remedy));
    }
}

/// A share outside (0, 1] is refused where it is read; here only whole pairs matter.
fn rotary_pairs(model: &ModelSpec, rules: &mut Rules) {
    let Position::Rotary { rotary_dims, .. } = model.position else { return };
    if rotary_dims == 0 || !rotary_dims.is_multiple_of(2) || rotary_dims > model.head_dim {
        let fraction = format!("{:?}", (rotary_dims as f64 / model.head_dim.max(1) as f64) as f32);
        let rule = format!("must rotate whole pairs of dims; got {rotary_dims} of model.head_dim = {}", model.head_dim);
        let remedy = even_shares(rotary_dims, model.head_dim);
        rules.report(Problem::of_value("model.rotary_fraction", fraction, rule, remedy));
    }
}

fn local_attention(model: &ModelSpec, rules: &mut Rules) {
    let Some(LocalAttention { pattern, rotary_base, .. }) = &model.local_attention else { return };
    let mut refuse = |rule: String, remedy: &str| {
        rules.report(Problem::of_key("model.layer_pattern", rule, remedy));
    };
    if pattern.len() > MAX_PATTERN {
        refuse(format!("has {} layers, more than {MAX_PATTERN}", pattern.len()), "use a shorter pattern");
    } else if !pattern.contains(&Reach::Local) {
        refuse("has no local layer for model.window".into(), "add one, or leave out model.window");
    }
    if rotary_base.is_some() && !matches!(model.position, Position::Rotary { .. }) {
        let rule = "has no effect without model.position = \"rotary\"";
        rules.report(Problem::of_key("model.local_rotary_base", rule, "leave it out"));
    }
}

fn padding_token(model: &ModelSpec, rules: &mut Rules) {
    let Some(token) = model.padding_token.filter(|token| *token >= model.vocabulary) else { return };
    let rule = format!("must be below model.vocabulary = {}", model.vocabulary);
    let remedy = format!("use at most {}, or leave it out", model.vocabulary - 1);
    rules.report(Problem::of_value("model.padding_token", token, rule, remedy));
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

fn paths(config: &RunConfig, rules: &mut Rules) {
    if config.data.sources.iter().any(|source| source.path.as_os_str().is_empty()) {
        rules.report(Problem::of_value("data.path", "\"\"", "names no file", "leave it out for the embedded corpus"));
    }
}
