//! The rules of the balance of experts once more.

use toml::Value;

use crate::verdicts::oracle::{Values, num};

/// Keys that mean something where there are experts.
pub const KEYS: &[&str] = &[
    "expert_capacity",
    "router_balance_loss",
    "router_balance_over",
    "router_z_loss",
    "router_bias",
    "router_bias_rate",
    "router_statistics",
];

fn given<'a>(values: &'a Values, key: &str) -> Option<&'a Value> {
    values.get(&format!("model.{key}"))
}

/// Whether a model with experts has such losses, corrections, capacities and statistics.
pub fn is_legal(values: &Values) -> bool {
    let loss = |key: &str| num(values, &format!("model.{key}"), 0.0);
    let [balance_loss, z_loss] = ["router_balance_loss", "router_z_loss"].map(loss);
    let has_bias = given(values, "router_bias").and_then(Value::as_bool) == Some(true);
    let rate = num(values, "model.router_bias_rate", if has_bias { 1e-3 } else { 0.0 });
    let capacity = given(values, "expert_capacity").is_some();
    let trains_routers = balance_loss > 0.0 || z_loss > 0.0 || rate > 0.0;
    (0.0..=1.0).contains(&balance_loss)
        && (0.0..=1.0).contains(&z_loss)
        && rate >= 0.0
        && (!capacity || num(values, "model.expert_capacity", 1.0) > 0.0)
        && (balance_loss > 0.0 || given(values, "router_balance_over").is_none())
        && (has_bias || given(values, "router_bias_rate").is_none())
        && !(given(values, "lora").is_some() && trains_routers)
}

/// Changes of the defaults, one for every rule of balance that a file can break.
pub const ONE_PER_RULE: &[&[(&str, &str)]] = &[
    &[("model.router_balance_loss", "0.01")],
    &[("model.router_statistics", "true")],
    &[("model.experts", "8"), ("model.biases", "false"), ("model.router_balance_loss", "2")],
    &[("model.experts", "8"), ("model.biases", "false"), ("model.router_z_loss", "-1")],
    &[("model.experts", "8"), ("model.biases", "false"), ("model.router_balance_over", "\"step\"")],
    &[
        ("model.experts", "8"),
        ("model.biases", "false"),
        ("model.router_balance_loss", "0"),
        ("model.router_balance_over", "\"step\""),
    ],
    &[("model.experts", "8"), ("model.biases", "false"), ("model.router_bias_rate", "1e-3")],
    &[
        ("model.experts", "8"),
        ("model.biases", "false"),
        ("model.router_bias", "true"),
        ("model.router_bias_rate", "-1e-3"),
    ],
    &[("model.experts", "8"), ("model.biases", "false"), ("model.expert_capacity", "0")],
    &[
        ("model.experts", "8"),
        ("model.biases", "false"),
        ("model.router_bias", "true"),
        ("model.lora", "{ rank = 8, targets = [\"query\"] }"),
    ],
    &[("model.logit_divisor", "0")],
];
