//! Rules of the texts that a run generates.

use super::Rules;
use crate::run_file::{MOST_SAMPLED, RunConfig};

pub(super) fn check(config: &RunConfig, rules: &mut Rules) {
    let (samples, cp) = (&config.run.samples, config.parallelism.degrees.cp);
    if samples.every == 0 {
        return;
    }
    let number = samples.prompts.len();
    refuse! { rules;
        !(1..=MOST_SAMPLED).contains(&number) => "run.sample_prompts" = format!("{number} prompts"),
            "must be 1 to 10,000", "use run.sample_prompts = [\"The\"]";
        samples.prompts.iter().any(String::is_empty) => "run.sample_prompts" = "\"\"",
            "is an empty prompt", "use at least one character";
        cp > 1 => "run.sample_every" = samples.every,
            format!("continues whole texts token by token, and parallelism.cp = {cp} ranks share the tokens of each"),
            "use parallelism.cp = 1, or run.sample_every = 0";
        config.data.blanks.is_some() => "run.sample_every" = samples.every,
            "continues texts whose tokens attend to those before them, and data.blanks has others",
            "use run.sample_every = 0";
    }
}
