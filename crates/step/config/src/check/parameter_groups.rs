//! Rules of `train.groups`: every pattern names parameters of this model, and no parameter has two groups.

use super::Rules;
use crate::model::ModelSpec;
use crate::parameter_groups::{ParameterGroup, is_named};
use crate::params::params;
use crate::problem::Problem;
use crate::run_file::{RunConfig, nearest};
use crate::unit::Unit;

const KEY: &str = "train.groups";
/// Every parameter is compared with every group.
const MOST_GROUPS: usize = 1000;

/// Only asked once the model has a size that can be counted.
pub(super) fn check(config: &RunConfig, rules: &mut Rules) {
    let groups = &config.train.groups;
    if groups.is_empty() {
        return;
    }
    if groups.len() > MOST_GROUPS {
        let rule = format!("has {} groups and must have at most {MOST_GROUPS}", groups.len());
        return rules.report(Problem::of_key(KEY, rule, "name several parameters in one group, or use *"));
    }
    let names = names(&config.model);
    for group in groups {
        numbers(config, group, rules);
        if group.parameters.is_empty() {
            rules.report(Problem::of_key(KEY, "has a group without parameters", "use parameters = [\"*.bias\"]"));
        }
        for pattern in &group.parameters {
            if !names.iter().any(|name| is_named(pattern, name)) {
                let rule = format!("has {pattern:?}, which names no parameter of this model");
                rules.report(Problem::of_key(KEY, rule, meant(pattern, &names)));
            }
        }
    }
    let owners = |name: &str| -> Vec<usize> {
        groups.iter().enumerate().filter(|(_, group)| group.contains(name)).map(|(index, _)| index + 1).collect()
    };
    if let Some((name, owners)) = names.iter().map(|name| (name, owners(name))).find(|(_, owners)| owners.len() > 1) {
        let rule = format!("has {name} in group {} and in group {}", owners[0], owners[1]);
        rules.report(Problem::of_key(KEY, rule, "name it in one group"));
    }
}

fn numbers(config: &RunConfig, group: &ParameterGroup, rules: &mut Rules) {
    let ParameterGroup { learning_rate_scale: scale, weight_decay, .. } = *group;
    let (rate, decay) = (config.train.learning_rate, weight_decay.unwrap_or(config.train.weight_decay));
    let (of_scale, of_decay) =
        (format!("has learning_rate_scale = {scale:?}, which"), format!("has weight_decay = {decay:?}, which"));
    refuse! { rules;
        scale < 0.0 => KEY, format!("{of_scale} must not be negative"), "use 0 or more";
        scale * rate > 1.0 => KEY, format!("{of_scale} times train.learning_rate = {rate:?} diverges"),
            "use a product of at most 1";
        decay < 0.0 => KEY, format!("{of_decay} makes weights grow"), "use 0 or more";
        decay * scale * rate >= 1.0 => KEY, format!(
            "{of_decay} times its learning rate, {:?}, is 1 or more, which flips the signs of weights", scale * rate
        ), "use a smaller product";
    }
}

fn names(model: &ModelSpec) -> Vec<String> {
    // Those that are not trained are in no group.
    let units = Unit::holding(model.num_layers).filter(|unit| model.trains(*unit));
    units.flat_map(|unit| params(model, unit)).map(|param| param.name).collect()
}

/// The pattern with each word that no name has replaced by the nearest one, if that names something; otherwise what
/// names look like.
fn meant(pattern: &str, names: &[String]) -> String {
    let words: Vec<&str> = names.iter().flat_map(|name| name.split('.')).collect();
    let corrected: Vec<&str> = pattern
        .split('.')
        .map(|word| {
            if word.contains('*') || words.contains(&word) {
                word
            } else {
                nearest(word, words.iter().copied()).unwrap_or(word)
            }
        })
        .collect();
    let corrected = corrected.join(".");
    if names.iter().any(|name| is_named(&corrected, name)) {
        return format!("did you mean {corrected:?}?");
    }
    match nearest(pattern, names.iter().map(String::as_str)) {
        Some(near) => format!("did you mean {near:?}?"),
        None => {
            let last = names.last().map_or("", String::as_str);
            format!(
                "names are such as {:?}, {:?} and {last:?}; * stands for any characters",
                names[0],
                names[names.len() / 2]
            )
        }
    }
}
