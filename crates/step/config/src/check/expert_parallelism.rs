//! Rules of `parallelism.ep`: what it must divide, and what it is not supported with.

use super::{Rules, nearest_of};
use crate::degrees::Degrees;
use crate::layout::SHARD_BLOCK;
use crate::parallelism::Parallelism;
use crate::problem::Problem;
use crate::run_file::RunConfig;

pub(super) fn check(config: &RunConfig, rules: &mut Rules) {
    let Parallelism { ep, degrees: Degrees { dp, tp, .. }, sum_tree, .. } = config.parallelism;
    let group = config.parallelism.shard_group();
    if ep == 1 || [ep, dp, tp, group].contains(&0) {
        return;
    }
    let Some(experts) = &config.model.experts else {
        let rule = "divides experts, and the model has none";
        return rules.report(Problem::of_value("parallelism.ep", ep, rule, "use 1, or set model.experts"));
    };
    // Experts that tensor parallelism does not divide are refused already.
    let of_tensor = if experts.number.is_multiple_of(tp) { experts.number / tp } else { ep };
    let divided = match tp {
        1 => format!("model.experts = {of_tensor}"),
        tp => format!("model.experts / parallelism.tp = {} / {tp} = {of_tensor}", experts.number),
    };
    let shared = [dp, group, of_tensor].into_iter().fold(0, mesh::greatest_common_divisor);
    let choice = format!("use {}", nearest_of(&mesh::divisors(shared.max(1)), ep, 8));
    let of_matrix = config.model.hidden.saturating_mul(experts.hidden);
    refuse! { rules;
        !dp.is_multiple_of(ep) => "parallelism.ep" = ep,
            format!("must divide parallelism.dp = {dp}, whose ranks divide the experts"), choice.as_str();
        dp.is_multiple_of(ep) && !group.is_multiple_of(ep) => "parallelism.ep" = ep,
            format!("must divide parallelism.shard_group = {group}"), choice.as_str();
        !of_tensor.is_multiple_of(ep) => "parallelism.ep" = ep, format!("must divide {divided}"), choice.as_str();
        sum_tree > 1 && !sum_tree.is_multiple_of(ep) => "parallelism.sum_tree" = sum_tree,
            format!("must be a multiple of parallelism.ep = {ep}, replicas with one copy of each expert"),
            format!("use 1, or {}", mesh::multiples_around(ep, sum_tree));
        !of_matrix.is_multiple_of(SHARD_BLOCK) => "parallelism.ep" = ep, format!(
            "needs matrices of experts of whole blocks of the norm, {SHARD_BLOCK} elements; got model.hidden x \
             model.expert_hidden = {of_matrix}"
        ), format!("use a model.expert_hidden that makes the product a multiple of {SHARD_BLOCK}, or 1");
    }
}
