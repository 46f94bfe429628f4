//! Rules of the texts that a run generates.

use super::Rules;
use crate::problem::Problem;
use crate::run_file::{MOST_SAMPLED, RunConfig};

pub(super) fn check(config: &RunConfig, rules: &mut Rules) {
    let samples = &config.run.samples;
    if samples.every == 0 {
        return;
    }
    let mut refuse = |holds: bool, key: &str, value: String, rule: &str, remedy: &str| {
        if !holds {
            rules.report(Problem::of_value(key, value, rule, remedy));
        }
    };
    let (number, is_empty) = (samples.prompts.len(), samples.prompts.iter().any(String::is_empty));
    let key = "run.sample_prompts";
    let remedy = "use run.sample_prompts = [\"The\"]";
    refuse((1..=MOST_SAMPLED).contains(&number), key, format!("{number} prompts"), "must be 1 to 10,000", remedy);
    refuse(!is_empty, key, "\"\"".into(), "is an empty prompt", "use at least one character");
    let (every, cp) = (samples.every.to_string(), config.parallelism.degrees.cp);
    let rule =
        format!("continues whole texts token by token, and parallelism.cp = {cp} ranks share the tokens of each");
    refuse(cp <= 1, "run.sample_every", every.clone(), &rule, "use parallelism.cp = 1, or run.sample_every = 0");
    let rule = "continues texts whose tokens attend to those before them, and data.blanks has others";
    refuse(config.data.blanks.is_none(), "run.sample_every", every, rule, "use run.sample_every = 0");
}
