//! The rules of experts once more.

use toml::Value;

use crate::verdicts::balance;
use crate::verdicts::model::{Model, has_gates};
use crate::verdicts::oracle::{Values, divides, int, num, text};

/// Keys that mean something where there are experts.
const OF_EXPERTS: &[&str] = &[
    "experts_per_token",
    "expert_hidden",
    "shared_expert_hidden",
    "shared_expert_gate",
    "first_expert_layer",
    "expert_layer_interval",
    "router_scores",
    "router_weights",
    "router_scale",
    "router_groups",
    "router_groups_kept",
];

/// Sizes with their defaults.
#[derive(Clone, Copy)]
pub struct Experts {
    pub number: i128,
    pub per_token: i128,
    pub hidden: i128,
    pub shared: Option<i128>,
    first_layer: i128,
    interval: i128,
}

fn is_set(values: &Values, key: &str) -> bool {
    values.contains_key(&format!("model.{key}"))
}

/// The experts of a model whose blocks are `ffn` wide; `None` where no number is given.
pub fn experts(values: &Values, ffn: i128) -> Option<Experts> {
    is_set(values, "experts").then(|| Experts {
        number: int(values, "model.experts", 0),
        per_token: int(values, "model.experts_per_token", 2),
        hidden: int(values, "model.expert_hidden", ffn),
        shared: is_set(values, "shared_expert_hidden").then(|| int(values, "model.shared_expert_hidden", 0)),
        first_layer: int(values, "model.first_expert_layer", 0),
        interval: int(values, "model.expert_layer_interval", 1),
    })
}

impl Experts {
    /// Whether `layer` has them.
    pub fn are_in(&self, layer: i128) -> bool {
        layer >= self.first_layer && (layer - self.first_layer) % self.interval.max(1) == 0
    }

    /// How many of `layers` have them.
    pub fn layers(&self, layers: i128) -> i128 {
        (self.first_layer..layers).step_by(self.interval.max(1) as usize).count() as i128
    }
}

/// Whether a model has such experts.
pub fn are_legal(values: &Values, Model { layers, ffn, .. }: &Model) -> bool {
    let Some(Experts { number, per_token, hidden, shared, first_layer, interval }) = experts(values, *ffn) else {
        return !OF_EXPERTS.iter().chain(balance::KEYS).any(|key| is_set(values, key));
    };
    let width = |width: i128| (1..=1 << 24).contains(&width);
    let has_gate = values.get("model.shared_expert_gate").and_then(Value::as_bool) == Some(true);
    (1..=4096).contains(&number)
        && (1..=number).contains(&per_token)
        && width(hidden)
        && shared.is_none_or(width)
        && (shared.is_some() || !has_gate)
        && first_layer < *layers
        && interval > 0
        && num(values, "model.router_scale", 1.0) > 0.0
        && groups(values, number, per_token)
        && !(have_biases(values) && shared.is_some())
        && balance::is_legal(values)
        && !adapts_experts(values)
}

/// Whether routers and experts have biases.
fn have_biases(values: &Values) -> bool {
    match values.get("model.biases") {
        None => true,
        Some(Value::Boolean(all)) => *all,
        Some(which) => which.as_str() == Some("ffn"),
    }
}

/// Groups are equally large, and those that are kept have enough experts. A sum of two scores needs two.
fn groups(values: &Values, number: i128, per_token: i128) -> bool {
    let [given, kept_given] = ["router_groups", "router_groups_kept"].map(|key| is_set(values, key));
    if !given || !kept_given {
        return given == kept_given;
    }
    let (groups, kept) = (int(values, "model.router_groups", 0), int(values, "model.router_groups_kept", 0));
    let least = if text(values, "model.router_scores", "softmax") == "sigmoid" { 2 } else { 1 };
    divides(groups, number)
        && number / groups >= least
        && (1..=groups).contains(&kept)
        && kept * (number / groups) >= per_token
}

/// Whether adapters are at matrices of a feed-forward block.
fn adapts_experts(values: &Values) -> bool {
    let targets = values.get("model.lora").and_then(|lora| lora.get("targets")).and_then(Value::as_array);
    targets.is_some_and(|targets| {
        targets.iter().filter_map(Value::as_str).any(|target| ["gate", "up", "down"].contains(&target))
    })
}

/// Whether tensor-parallel ranks have equally many experts, and equal parts of every dense block.
pub fn are_divided(values: &Values, tp: i128, Model { layers, ffn, .. }: &Model) -> bool {
    let Some(experts) = experts(values, *ffn) else { return divides(tp, *ffn) };
    let has_top_query = values.get("model.top_query").and_then(Value::as_bool) == Some(true);
    let has_dense = has_top_query || experts.layers(*layers) < *layers;
    divides(tp, experts.number)
        && (!has_dense || divides(tp, *ffn))
        && experts.shared.is_none_or(|shared| divides(tp, shared))
}

/// Names of the parameters of a layer's experts, after the name of the layer.
pub fn names(values: &Values, experts: &Experts) -> Vec<String> {
    let is_gated = has_gates(values);
    let mut names = vec!["router".into(), "experts.down".into()];
    names.push(if is_gated { "experts.gate_up".into() } else { "experts.up".to_string() });
    let biases: Vec<String> = if have_biases(values) { names.clone() } else { vec![] };
    if experts.shared.is_some() {
        names.extend(["shared.up", "shared.down"].map(String::from));
        if is_gated {
            names.push("shared.gate".into());
        }
        if values.get("model.shared_expert_gate").and_then(Value::as_bool) == Some(true) {
            names.push("shared_gate".into());
        }
    }
    let weights = names.into_iter().map(|name: String| name + ".weight");
    weights.chain(biases.into_iter().map(|name| name + ".bias")).collect()
}

/// Changes of the defaults, one for every rule of experts that a file can break.
pub const ONE_PER_RULE: &[&[(&str, &str)]] = &[
    &[("model.experts", "0"), ("model.biases", "false")],
    &[("model.experts", "5000"), ("model.biases", "false")],
    &[("model.experts", "8"), ("model.biases", "false"), ("model.experts_per_token", "0")],
    &[("model.experts", "8"), ("model.biases", "false"), ("model.experts_per_token", "9")],
    &[("model.experts", "8"), ("model.biases", "false"), ("model.expert_hidden", "0")],
    &[("model.experts", "8"), ("model.biases", "false"), ("model.expert_hidden", "20000000")],
    &[("model.experts", "8"), ("model.biases", "false"), ("model.shared_expert_hidden", "0")],
    &[("model.experts", "8"), ("model.biases", "false"), ("model.shared_expert_hidden", "65")],
    &[("model.experts", "8"), ("model.biases", "false"), ("model.shared_expert_gate", "true")],
    &[("model.experts", "8"), ("model.biases", "false"), ("model.first_expert_layer", "6")],
    &[("model.experts", "8"), ("model.biases", "false"), ("model.expert_layer_interval", "0")],
    &[("model.experts", "8"), ("model.biases", "false"), ("model.router_scores", "\"relu\"")],
    &[("model.experts", "8"), ("model.biases", "false"), ("model.router_weights", "\"softmax\"")],
    &[("model.experts", "8"), ("model.biases", "false"), ("model.router_scale", "0")],
    &[
        ("model.experts", "8"),
        ("model.biases", "false"),
        ("model.router_groups", "3"),
        ("model.router_groups_kept", "1"),
    ],
    &[
        ("model.experts", "8"),
        ("model.biases", "false"),
        ("model.router_groups", "8"),
        ("model.router_groups_kept", "4"),
        ("model.router_scores", "\"sigmoid\""),
    ],
    &[
        ("model.experts", "8"),
        ("model.biases", "false"),
        ("model.router_groups", "4"),
        ("model.router_groups_kept", "5"),
    ],
    &[
        ("model.experts", "8"),
        ("model.biases", "false"),
        ("model.router_groups", "4"),
        ("model.router_groups_kept", "1"),
        ("model.experts_per_token", "3"),
    ],
    &[("model.experts", "8"), ("model.biases", "false"), ("model.router_groups", "4")],
    &[("model.experts", "8"), ("model.biases", "false"), ("model.router_groups_kept", "1")],
    &[
        ("model.experts", "8"),
        ("model.biases", "false"),
        ("parallelism.tp", "3"),
        ("model.num_heads", "6"),
        ("model.hidden", "96"),
        ("model.ffn_hidden", "384"),
    ],
    &[
        ("model.experts", "8"),
        ("model.biases", "false"),
        ("model.lora", "{ rank = 8, targets = [\"query\", \"down\"] }"),
    ],
    &[("model.experts", "4096"), ("model.biases", "false"), ("model.expert_hidden", "16777216")],
    &[("model.experts", "8"), ("model.shared_expert_hidden", "64")],
    &[("model.experts", "8"), ("model.biases", "\"ffn\""), ("model.shared_expert_hidden", "64")],
    &[("model.experts_per_token", "2")],
    &[("model.router_scale", "1.0")],
    &[("model.shared_expert_gate", "false")],
];
