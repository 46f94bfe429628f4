//! The oracle for `[model]`.

use crate::verdicts::oracle::{Values, divides, int, num, text, tokens};

/// Sizes with their defaults.
pub struct Model {
    pub layers: i128,
    pub hidden: i128,
    pub heads: i128,
    pub kv_heads: i128,
    pub head_dim: i128,
    pub ffn: i128,
    pub vocabulary: i128,
    pub context: i128,
}

pub fn resolved_model(values: &Values) -> Model {
    let hidden = int(values, "model.hidden", 128);
    let heads = int(values, "model.num_heads", 4);
    Model {
        layers: int(values, "model.num_layers", 6),
        hidden,
        heads,
        kv_heads: int(values, "model.num_kv_heads", heads),
        head_dim: int(values, "model.head_dim", hidden / heads.max(1)),
        ffn: int(values, "model.ffn_hidden", 4 * hidden),
        vocabulary: int(values, "model.vocabulary", tokens(values)),
        context: int(values, "model.context", 128),
    }
}

/// Whether activations have gates.
pub fn has_gates(values: &Values) -> bool {
    ["swiglu", "geglu", "geglu_tanh", "swiglu_clamped"].contains(&text(values, "model.activation", "gelu_tanh"))
}

/// Whether `[model]` is one.
pub fn is_legal(values: &Values) -> bool {
    let model = resolved_model(values);
    let Model { layers, hidden, heads, kv_heads, head_dim, ffn, vocabulary, context } = model;
    let sizes = [layers, hidden, heads, kv_heads, head_dim, ffn, vocabulary, context];
    let share = |key: &str, default| (0.0..1.0).contains(&num(values, key, default));
    let dropout = num(values, "model.dropout", 0.0);
    sizes.iter().all(|size| (1..=1 << 24).contains(size))
        && context <= 1 << 23
        && heads * head_dim <= 1 << 24
        && head_dim <= 512
        && (values.contains_key("model.head_dim") || divides(heads, hidden))
        && divides(kv_heads, heads)
        && vocabulary >= tokens(values)
        && rotary(values, head_dim)
        && offset(values)
        && deepnorm(values)
        && num(values, "model.norm_epsilon", 1e-5) > 0.0
        && num(values, "model.logit_divisor", 1.0) > 0.0
        && share("model.dropout", 0.0)
        && share("model.attention_dropout", dropout)
        && num(values, "model.init_std", 0.02) > 0.0
        && num(values, "model.output_init_std", 0.02) > 0.0
        && num(values, "model.xavier_gain", 1.0) > 0.0
        && (0.0..=1.0).contains(&num(values, "model.z_loss", 0.0))
        && !(values.contains_key("model.xavier_gain") && values.contains_key("model.output_init_std"))
        && int(values, "model.padding_token", 0) < vocabulary
        && rotary_scaling(values)
}

fn rotary(values: &Values, head_dim: i128) -> bool {
    let keys = ["model.rotary_base", "model.rotary_fraction", "model.rotary_pairing", "model.rotary_scaling"];
    if text(values, "model.position", "learned") != "rotary" {
        return !keys.iter().any(|key| values.contains_key(*key));
    }
    let fraction = num(values, "model.rotary_fraction", 1.0);
    let dims = (f64::from(fraction as f32) * head_dim as f64).round() as i128;
    num(values, "model.rotary_base", 1e4) > 1.0 && fraction > 0.0 && fraction <= 1.0 && dims > 0 && dims % 2 == 0
}

fn rotary_scaling(values: &Values) -> bool {
    let is_set = |key: &str| values.contains_key(key);
    let of_llama = ["model.rotary_low_turns", "model.rotary_high_turns", "model.rotary_original_context"];
    let kind = text(values, "model.rotary_scaling", "none");
    if kind != "llama3" && of_llama.into_iter().any(is_set) {
        return false;
    }
    let (low, high) = (num(values, "model.rotary_low_turns", 1.0), num(values, "model.rotary_high_turns", 4.0));
    let tokens = int(values, "model.rotary_original_context", 8192);
    match kind {
        "none" => !is_set("model.rotary_scaling_factor"),
        _ => {
            num(values, "model.rotary_scaling_factor", 8.0) >= 1.0
                && low > 0.0
                && high > low
                && (1..=1 << 23).contains(&tokens)
        }
    }
}

fn offset(values: &Values) -> bool {
    match values.contains_key("model.position_offset") {
        true => {
            text(values, "model.position", "learned") == "learned" && int(values, "model.position_offset", 0) <= 1 << 23
        }
        false => true,
    }
}

fn deepnorm(values: &Values) -> bool {
    match text(values, "model.blocks", "sequential") {
        "deepnorm" => num(values, "model.deepnorm_alpha", 1.0) > 0.0,
        _ => !values.contains_key("model.deepnorm_alpha"),
    }
}
