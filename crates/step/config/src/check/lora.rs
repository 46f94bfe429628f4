//! Rules of `model.lora`.

use super::Rules;
use crate::lora::{LinearLayer, LoraSpec};
use crate::model::TopQuery;
use crate::optimizer::Optimizer;
use crate::precision::GradientSums;
use crate::problem::Problem;
use crate::run_file::RunConfig;
use crate::zero::ZeroStage;

/// Largest rank, as large as the largest hidden width that models with adapters have.
const MAX_RANK: usize = 1 << 14;

pub(super) fn check(config: &RunConfig, rules: &mut Rules) {
    let Some(lora) = &config.model.lora else { return };
    if let Err((rule, remedy)) = itself(config, lora) {
        rules.report(Problem::of_key("model.lora", rule, remedy));
    }
    refuse! { rules;
        matches!(config.parallelism.zero, ZeroStage::Three { .. }) => "parallelism.zero" = 3,
            "shards parameters, which model.lora keeps whole", "use 0, 1 or 2";
        matches!(config.train.optimizer, Optimizer::Muon(_)) => "train.optimizer" = "\"muon\"",
            "has no updates for the matrices of model.lora", "use \"adamw\"";
        config.train.sums == GradientSums::Exact => "train.sums" = "\"exact\"",
            "has no range for the gradients of model.lora", "use \"single\"";
    }
}

fn itself(config: &RunConfig, lora: &LoraSpec) -> Result<(), (String, String)> {
    let LoraSpec { rank, alpha, targets } = lora;
    let has_experts = config.model.num_expert_layers() > 0;
    if *rank == 0 || *rank > MAX_RANK {
        return Err((format!("has rank = {rank}, which must be a number of columns"), format!("use 1 to {MAX_RANK}")));
    }
    if !(*alpha > 0.0 && alpha.is_finite()) {
        return Err((format!("has alpha = {alpha:?}, which must be positive"), format!("use {:?}", *rank as f32)));
    }
    if targets.is_empty() {
        return Err(("has no targets".into(), "use targets = [\"query\", \"value\"]".into()));
    }
    if targets.contains(&LinearLayer::Gate) && config.model.activation.inputs_per_output() == 1 {
        let rule = "has the target \"gate\", which only gated activations have".to_string();
        return Err((rule, "leave it out, or use model.activation = \"swiglu\"".into()));
    }
    let of_experts = [LinearLayer::Gate, LinearLayer::Up, LinearLayer::Down];
    if let Some(target) = targets.iter().find(|target| of_experts.contains(target)).filter(|_| has_experts) {
        let name = target.name();
        let rule = format!("has the target {name:?}, a matrix of experts where model.experts is given");
        return Err((rule, "use targets among \"query\", \"key\", \"value\" and \"output\"".into()));
    }
    if config.model.top_query == TopQuery::On {
        return Err(("has no adapters for the layer of model.top_query".into(), "leave model.lora out".into()));
    }
    Ok(())
}
