//! Rules of `[model]`, and of the text that it reads.

use super::{Rules, nearest_of};
use crate::local_attention::{LocalAttention, MAX_PATTERN, Reach};
use crate::model::{Blocks, MAX_DROPOUT_HEADS, MAX_DROPOUT_KEYS, MAX_HEAD_DIM, ModelSpec, Position};
use crate::problem::Problem;
use crate::rotary_scaling::RotaryScaling;
use crate::run_file::RunConfig;

pub(super) fn check(config: &RunConfig, rules: &mut Rules) {
    let model = &config.model;
    let positive = rules.all_positive(&[
        ("model.num_layers", model.num_layers),
        ("model.hidden", model.hidden),
        ("model.num_heads", model.num_heads),
        ("model.num_kv_heads", model.num_kv_heads),
        ("model.head_dim", model.head_dim),
        ("model.ffn_hidden", model.ffn_hidden),
        ("model.vocabulary", model.vocabulary),
        ("model.context", model.context),
    ]);
    feed_forward_widths(model, rules);
    if positive {
        key_value_heads(model, rules);
        vocabulary(config, rules);
        padding_token(model, rules);
        head_width(model, rules);
        widths(model, rules);
        dropout_coordinates(config, rules);
    }
    rotary(model, rules);
    local_attention(model, rules);
    position_offset(model, rules);
    numbers(model, rules);
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
    if head_dim <= MAX_HEAD_DIM {
        return;
    }
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

fn vocabulary(config: &RunConfig, rules: &mut Rules) {
    let Some(tokens) = config.data.tokenizer.vocabulary() else { return };
    if config.model.vocabulary < tokens {
        let rule = format!("is less than the {tokens} tokens of data.tokenizer");
        let remedy = format!("use at least {tokens}");
        rules.report(Problem::of_value("model.vocabulary", config.model.vocabulary, rule, remedy));
    }
}

/// Longest sequence: attention compares positions in single precision, whose whole numbers are exact up to 2^24, and a
/// pass that generates computes rows after the context.
const MAX_CONTEXT: usize = 1 << 23;
/// Widest row of any matrix: offsets within a matrix then fit 32 bits in every kernel.
const MAX_WIDTH: usize = 1 << 24;

fn widths(model: &ModelSpec, rules: &mut Rules) {
    let widths = [
        ("model.hidden", model.hidden),
        ("model.ffn_hidden", model.ffn_hidden),
        ("model.vocabulary", model.vocabulary),
        ("model.num_heads", model.num_heads),
        ("model.head_dim", model.head_dim),
        ("model.num_layers", model.num_layers),
    ];
    for (key, width) in widths.into_iter().filter(|(_, width)| *width > MAX_WIDTH) {
        rules.report(Problem::of_value(
            key,
            width,
            "is more than any supported model has",
            format!("use at most {MAX_WIDTH}"),
        ));
    }
    if model.context > MAX_CONTEXT {
        let rule = "is more positions than attention can distinguish";
        rules.report(Problem::of_value("model.context", model.context, rule, format!("use at most {MAX_CONTEXT}")));
    }
    let attention_width = model.num_heads.saturating_mul(model.head_dim);
    if attention_width > MAX_WIDTH && model.num_heads <= MAX_WIDTH && model.head_dim <= MAX_WIDTH {
        let rule =
            format!("times model.num_heads = {} is {attention_width} columns, more than {MAX_WIDTH}", model.num_heads);
        rules.report(Problem::of_value("model.head_dim", model.head_dim, rule, ""));
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

fn rotary(model: &ModelSpec, rules: &mut Rules) {
    let Position::Rotary { base, rotary_dims, scaling, .. } = model.position else { return };
    rotary_scaling(scaling, rules);
    rules.number(
        "model.rotary_base",
        base,
        base > 1.0 && base.is_finite(),
        "must give falling frequencies",
        "use more than 1",
    );
    // A share outside (0, 1] is refused where it is read; here only whole pairs matter.
    if rotary_dims == 0 || !rotary_dims.is_multiple_of(2) || rotary_dims > model.head_dim {
        let fraction = format!("{:?}", (rotary_dims as f64 / model.head_dim.max(1) as f64) as f32);
        let rule = format!("must rotate whole pairs of dims; got {rotary_dims} of model.head_dim = {}", model.head_dim);
        rules.report(Problem::of_value(
            "model.rotary_fraction",
            fraction,
            rule,
            even_shares(rotary_dims, model.head_dim),
        ));
    }
}

fn rotary_scaling(scaling: RotaryScaling, rules: &mut Rules) {
    let factor = match scaling {
        RotaryScaling::Off => return,
        RotaryScaling::Linear { factor }
        | RotaryScaling::Llama3 { factor, .. }
        | RotaryScaling::Yarn { factor, .. } => factor,
    };
    let rule = "must slow rotations down";
    rules.number("model.rotary_scaling_factor", factor, factor >= 1.0, rule, "use 1 or more");
    if let RotaryScaling::Yarn { magnitude, .. } = scaling {
        let rule = "must keep queries and keys";
        rules.number("model.rotary_magnitude", magnitude, magnitude > 0.0, rule, "leave it out, or use more than 0");
    }
    let (RotaryScaling::Llama3 { low_turns, high_turns, original_context, .. }
    | RotaryScaling::Yarn { low_turns, high_turns, original_context, .. }) = scaling
    else {
        return;
    };
    let rule = "must be a positive number of turns";
    rules.number("model.rotary_low_turns", low_turns, low_turns > 0.0, rule, "use more than 0");
    let rule = format!("must be more than model.rotary_low_turns = {low_turns:?}");
    let remedy = format!("use {:?}", 4.0 * low_turns);
    rules.number("model.rotary_high_turns", high_turns, high_turns > low_turns, &rule, &remedy);
    if !(1..=MAX_CONTEXT).contains(&original_context) {
        let rule = "must be the context length of pretraining";
        let remedy = format!("use from 1 to {MAX_CONTEXT}");
        rules.report(Problem::of_value("model.rotary_original_context", original_context, rule, remedy));
    }
}

fn local_attention(model: &ModelSpec, rules: &mut Rules) {
    let Some(LocalAttention { window, pattern, rotary_base }) = &model.local_attention else { return };
    if !(1..=MAX_CONTEXT).contains(window) {
        let remedy = format!("use from 1 to {MAX_CONTEXT}, or leave it out");
        rules.report(Problem::of_value("model.window", window, "must let a token see itself", remedy));
    }
    let mut refuse = |rule: String, remedy: &str| {
        rules.report(Problem::of_key("model.layer_pattern", rule, remedy));
    };
    if pattern.len() > MAX_PATTERN {
        refuse(format!("has {} layers, more than {MAX_PATTERN}", pattern.len()), "use a shorter pattern");
    } else if !pattern.contains(&Reach::Local) {
        refuse("has no local layer for model.window".into(), "add one, or leave out model.window");
    }
    let Some(base) = rotary_base else { return };
    let (rule, remedy) = ("must give falling frequencies", "use more than 1, or leave it out");
    rules.number("model.local_rotary_base", *base, *base > 1.0 && base.is_finite(), rule, remedy);
    if !matches!(model.position, Position::Rotary { .. }) {
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

fn position_offset(model: &ModelSpec, rules: &mut Rules) {
    let Position::Learned { offset } = model.position else { return };
    if offset > MAX_CONTEXT {
        let rule = "is more rows than a position table can skip";
        let remedy = format!("use at most {MAX_CONTEXT}");
        rules.report(Problem::of_value("model.position_offset", offset, rule, remedy));
    }
}

fn numbers(model: &ModelSpec, rules: &mut Rules) {
    let epsilon = model.norm.epsilon;
    rules.number("model.norm_epsilon", epsilon, epsilon > 0.0, "must be more than 0", "use 1e-5");
    let no_probability = "must be a probability below 1";
    rules.below_one("model.dropout", model.dropout, no_probability);
    if let Some(coefficient) = model.z_loss {
        let holds = (0.0..=1.0).contains(&coefficient);
        rules.number(
            "model.z_loss",
            coefficient,
            holds,
            "must be the coefficient of a loss",
            "use 0 to 1, such as 1e-4",
        );
    }
    // It follows dropout, unless it is given; one verdict is enough.
    if model.attention_dropout != model.dropout {
        rules.below_one("model.attention_dropout", model.attention_dropout, no_probability);
    }
    rules.number(
        "model.init_std",
        model.init_std,
        model.init_std > 0.0,
        "must be a standard deviation above 0",
        "use 0.02",
    );
    if let Some(std) = model.output_init_std {
        let rule = "must be a standard deviation above 0";
        rules.number("model.output_init_std", std, std > 0.0, rule, "leave it out, or use more than 0");
    }
    let scales = [
        ("model.embedding_scale", model.embedding_scale),
        ("model.query_scalar", model.query_scalar),
        ("model.attention_soft_cap", model.attention_soft_cap),
        ("model.logit_soft_cap", model.logit_soft_cap),
    ];
    for (key, value) in scales.into_iter().filter_map(|(key, value)| Some((key, value?))) {
        rules.number(key, value, value > 0.0, "must be more than 0", "leave it out, or use more than 0");
    }
    if let Some(gain) = model.xavier_gain {
        let rule = "must be more than 0";
        rules.number("model.xavier_gain", gain, gain > 0.0, rule, "leave it out, or use more than 0");
    }
    if let Blocks::DeepNorm { alpha } = model.blocks {
        let rule = "must keep the residual stream";
        rules.number("model.deepnorm_alpha", alpha, alpha > 0.0, rule, "use more than 0");
    }
}

fn paths(config: &RunConfig, rules: &mut Rules) {
    if config.data.sources.iter().any(|source| source.path.as_os_str().is_empty()) {
        rules.report(Problem::of_value("data.path", "\"\"", "names no file", "leave it out for the embedded corpus"));
    }
}
