//! Rules of `model.experts` and of its router.

use super::{Rules, nearest_of};
use crate::balance::Balance;
use crate::experts::ExpertsSpec;
use crate::model::ModelSpec;
use crate::problem::Problem;
use crate::routing::{ExpertGroups, RouterScores};
use crate::run_file::{Item as _, RunConfig};

/// The largest number of experts, as many as a router's kernels keep scores of.
const MAX_EXPERTS: usize = 4096;

pub(super) fn check(config: &RunConfig, rules: &mut Rules) {
    let model = &config.model;
    let Some(experts) = &model.experts else { return };
    let ExpertsSpec { number, per_token, first_layer, .. } = *experts;
    refuse! { rules;
        number > MAX_EXPERTS => "model.experts" = number, format!("must be at most {MAX_EXPERTS}"),
            format!("use at most {MAX_EXPERTS}");
        per_token > number && number > 0 => "model.experts_per_token" = per_token,
            format!("must be at most model.experts = {number}"), format!("use 1 to {number}");
        first_layer >= model.num_layers && model.num_layers > 0 => "model.first_expert_layer" = first_layer,
            format!("must be below model.num_layers = {}, counted from 0", model.num_layers),
            format!("use 0 to {}, or leave model.experts out", model.num_layers - 1);
        model.ffn_hidden_of_layers.is_some() => "model.ffn_hidden_of_layers",
            "has no effect on layers with experts", "leave it out, or leave model.experts out";
        experts.shared.is_some() && model.biases.are_in_feed_forward() => "model.biases" = model.biases.written(),
            "gives biases to feed-forward blocks, and a shared expert has none",
            "use \"attention\", \"qkv\" or false, or leave model.shared_expert_hidden out";
    }
    groups(model, experts, rules);
    balance(config, &experts.balance, rules);
}

/// Adapters leave routers as they are.
fn balance(config: &RunConfig, balance: &Balance, rules: &mut Rules) {
    if config.model.lora.is_none() {
        return;
    }
    let moved = balance.bias.filter(|_| balance.moves_bias());
    let written = |value: f32| value.written();
    let trained = [
        ("model.router_balance_loss", balance.loss.map(written)),
        ("model.router_z_loss", balance.z_loss.map(written)),
        ("model.router_bias_rate", moved.map(|bias| written(bias.rate))),
    ];
    for (key, value) in trained.iter().filter_map(|(key, value)| Some((key, value.as_ref()?))) {
        let rule = "is of routers, which model.lora does not train";
        rules.report(Problem::of_value(key, value, rule, "use 0"));
    }
}

fn groups(model: &ModelSpec, experts: &ExpertsSpec, rules: &mut Rules) {
    let (ExpertsSpec { number, per_token, routing, .. }, Some(groups)) = (*experts, experts.routing.groups) else {
        return;
    };
    let ExpertGroups { number: groups, kept } = groups;
    if number == 0 || groups == 0 || model.num_layers == 0 {
        return;
    }
    let of_group = number / groups;
    let least = match routing.scores {
        RouterScores::Sigmoid => 2,
        RouterScores::Softmax => 1,
    };
    let divides = number.is_multiple_of(groups);
    refuse! { rules;
        !divides => "model.router_groups" = groups, format!("must divide model.experts = {number}"),
            format!("use {}", nearest_of(&mesh::divisors(number), groups, 8));
        divides && of_group < least => "model.router_groups" = groups,
            format!("gives groups of {of_group} experts, whose score is a sum of {least}"),
            format!("use at most {}", (number / least).max(1));
        kept > groups => "model.router_groups_kept" = kept,
            format!("must be at most model.router_groups = {groups}"), format!("use 1 to {groups}");
        divides && kept <= groups && kept * of_group < per_token => "model.router_groups_kept" = kept,
            format!("leaves {} experts for model.experts_per_token = {per_token}", kept * of_group),
            format!("use at least {}", per_token.div_ceil(of_group.max(1)));
    }
}
