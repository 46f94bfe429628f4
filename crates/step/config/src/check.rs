//! Checks a run before anything starts: reports all broken rules at once, each with legal values.

/// Reports each rule whose condition holds: `condition => key = value, rule, remedy;`, or without a value where the key
/// itself is wrong. The condition says what is wrong.
macro_rules! refuse {
    ($rules:ident; $($wrong:expr => $key:tt $(= $value:expr)?, $rule:expr, $remedy:expr;)+) => {
        $(if $wrong { $rules.broken.push(refuse!(@problem $key, [$($value)?], $rule, $remedy)); })+
    };
    (@problem $key:tt, [], $rule:expr, $remedy:expr) => {
        $crate::problem::Problem::of_key($key, $rule, $remedy)
    };
    (@problem $key:tt, [$value:expr], $rule:expr, $remedy:expr) => {
        $crate::problem::Problem::of_value($key, $value, $rule, $remedy)
    };
}

mod batch_ramp;
mod blanks;
mod chat;
mod data;
mod expert_parallelism;
mod experts;
mod lora;
mod model;
mod parallelism;
mod parameter_groups;
mod run;
mod samples;
mod sizes;
mod train;

use crate::model::ModelSpec;
use crate::parallelism::Parallelism;
use crate::problem::Problem;
use crate::run_file::RunConfig;
use crate::training::TrainSpec;

/// Checks every rule. Pure, and under a millisecond.
///
/// # Errors
/// All rules that `config` breaks, by section.
pub fn check(config: &RunConfig) -> Result<(), Vec<Problem>> {
    let mut rules = Rules { broken: config.out_of_range() };
    model::check(config, &mut rules);
    experts::check(config, &mut rules);
    lora::check(config, &mut rules);
    parallelism::check(config, &mut rules);
    expert_parallelism::check(config, &mut rules);
    train::check(config, &mut rules);
    batch_ramp::check(config, &mut rules);
    data::check(config, &mut rules);
    blanks::check(config, &mut rules);
    chat::check(config, &mut rules);
    run::check(config, &mut rules);
    samples::check(config, &mut rules);
    if rules.broken.is_empty() {
        sizes::check(config, &mut rules);
    }
    if rules.broken.is_empty() {
        parameter_groups::check(config, &mut rules);
    }
    if rules.broken.is_empty() { Ok(()) } else { Err(rules.broken) }
}

/// Checks the sizes of a run that was not read from a run file, before anything is planned for it. Its counts are
/// positive, and its batch is one of whole microbatches.
///
/// # Errors
/// All sizes that are beyond what can be planned.
pub fn check_sizes(model: &ModelSpec, parallelism: &Parallelism, train: &TrainSpec) -> Result<(), Vec<Problem>> {
    let run = RunConfig {
        model: model.clone(),
        parallelism: parallelism.clone(),
        train: train.clone(),
        ..RunConfig::quick_start()
    };
    let mut rules = Rules::default();
    parallelism::ranks(&run.parallelism, &mut rules);
    if rules.broken.is_empty() {
        sizes::check_measured(&run, &mut rules);
    }
    if rules.broken.is_empty() { Ok(()) } else { Err(rules.broken) }
}

/// Collects broken rules.
#[derive(Debug, Default)]
struct Rules {
    broken: Vec<Problem>,
}

impl Rules {
    fn report(&mut self, problem: Problem) {
        self.broken.push(problem);
    }
}

/// At most `limit` of the ascending `candidates`, those nearest to `value`, as a choice in a sentence.
fn nearest_of(candidates: &[usize], value: usize, limit: usize) -> String {
    let mut kept = candidates.to_vec();
    while kept.len() > limit {
        let (first, last) = (kept[0], kept[kept.len() - 1]);
        if value.abs_diff(first) > value.abs_diff(last) {
            kept.remove(0);
        } else {
            kept.pop();
        }
    }
    mesh::alternatives(&kept)
}
