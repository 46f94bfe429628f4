//! The keys of `[model]` about the losses of routers, the correction of their choice, and their statistics.

use super::keys::Keys;
use super::reader::OfWeights::Training;
use crate::balance::{Balance, LoadSet, RouterBias};

/// Keys that have a meaning where there are experts.
pub(super) const KEYS: [&str; 7] = [
    "expert_capacity",
    "router_balance_loss",
    "router_balance_over",
    "router_z_loss",
    "router_bias",
    "router_bias_rate",
    "router_statistics",
];

const COEFFICIENT: &str = "must be the coefficient of a loss";

/// The default rate of the papers of DeepSeek.
const RATE: f32 = 1e-3;

pub(super) fn visit(keys: &mut Keys<'_>, balance: &mut Balance) {
    let is_coefficient = |coefficient: &f32| (0.0..=1.0).contains(coefficient);
    let key = keys.key("router_balance_loss", &mut balance.loss).of(Training);
    key.must(is_coefficient, COEFFICIENT, "use 0 to 1, such as 1e-2").megatron("moe_aux_loss_coeff");
    balance.loss = balance.loss.filter(|coefficient| *coefficient != 0.0);
    // It is written where it has a meaning.
    let mut over = balance.loss.map(|_| balance.over);
    keys.key("router_balance_over", &mut over).of(Training).megatron(
        "moe_router_load_balancing_type: seq_aux_loss is \"sequence\", global_aux_loss is \"step\", aux_loss depends \
         on microbatches",
    );
    balance.over = over.unwrap_or(LoadSet::Sequence);
    let (rule, remedy) = ("has no effect without model.router_balance_loss", "give both, or leave it out");
    keys.idle(balance.loss.is_none(), &["router_balance_over"], rule, remedy);
    let key = keys.key("router_z_loss", &mut balance.z_loss).of(Training);
    key.must(is_coefficient, COEFFICIENT, "use 0 to 1, such as 1e-3").megatron("moe_z_loss_coeff");
    balance.z_loss = balance.z_loss.filter(|coefficient| *coefficient != 0.0);
    bias(keys, balance);
    let key = keys.key("expert_capacity", &mut balance.capacity).of(Training);
    key.above_zero("must leave an expert some tokens", "leave it out, or use more than 0, such as 1.25")
        .megatron("moe_expert_capacity_factor");
    let key = keys.key("router_statistics", &mut balance.statistics).of(Training);
    key.megatron("moe_per_layer_logging");
}

fn bias(keys: &mut Keys<'_>, balance: &mut Balance) {
    let mut has_bias = balance.bias.is_some();
    let mut rate = balance.bias.map(|bias| bias.rate);
    keys.key("router_bias", &mut has_bias).megatron("moe_router_enable_expert_bias");
    let is_rate = |rate: &f32| *rate >= 0.0 && rate.is_finite();
    let key = keys.key("router_bias_rate", &mut rate).of(Training);
    key.must(is_rate, "must be a step of choice scores", "use 0 or more, such as 1e-3")
        .megatron("moe_router_bias_update_rate");
    let (rule, remedy) = ("has no effect without model.router_bias = true", "give both, or leave it out");
    keys.idle(!has_bias, &["router_bias_rate"], rule, remedy);
    balance.bias = has_bias.then(|| RouterBias { rate: rate.unwrap_or(RATE) });
}
