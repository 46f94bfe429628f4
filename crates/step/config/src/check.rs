//! Checks a run before anything starts: reports all broken rules at once, each with legal values.

mod batch_ramp;
mod blanks;
mod chat;
mod data;
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
    lora::check(config, &mut rules);
    parallelism::check(config, &mut rules);
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

    /// Whether all of these counts are at least 1; reports those that are not.
    fn all_positive(&mut self, counts: &[(&str, usize)]) -> bool {
        for (key, _) in counts.iter().filter(|(_, count)| *count == 0) {
            self.report(Problem::of_value(key, 0, "must be positive", "use at least 1"));
        }
        counts.iter().all(|(_, count)| *count > 0)
    }

    /// `value` is where `holds` says; otherwise `rule` is broken.
    fn number(&mut self, key: &str, value: f32, holds: bool, rule: &str, remedy: &str) {
        if !holds {
            self.report(Problem::of_value(key, format!("{value:?}"), rule, remedy));
        }
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
