//! Refuses to resume a run with another function in the same tensors: weights that one activation has learned are not
//! those of another.

use std::path::Path;

use config::is_function_of_weights;
use serde_json::Value;

use crate::failure::Failure;
use crate::layout::changes::{Changed, key_of};

/// Refuses `changed` keys of the run of the checkpoint at `path` that belong to its model; `asked` are the settings of
/// the command line. A key that a later version has added has its default.
///
/// # Errors
/// Every such key, with both values.
pub fn check(path: &Path, changed: &Changed, asked: &[String]) -> Result<(), Failure> {
    let is_asked =
        |key: &str| asked.iter().any(|set| key_of(set) == key || key_of(set).starts_with(&format!("{key}.")));
    let is_other = |(key, [before, _]): &(&String, &[Value; 2])| {
        is_function_of_weights(key) && (!before.is_null() || is_asked(key))
    };
    let line = |(key, [before, after]): (&String, &[Value; 2])| {
        format!(
            "{key} = {} must be {}, as in {}; leave it out, or begin a new run of the other model",
            shown(after),
            shown(before),
            path.display()
        )
    };
    let lines: Vec<String> = changed.iter().filter(is_other).map(line).collect();
    if lines.is_empty() { Ok(()) } else { Err(Failure::Input(lines.join("\n"))) }
}

/// A note for each key of the model that is changed all the same, with both values.
pub fn notes(changed: &Changed) -> Vec<String> {
    let of_model = changed.iter().filter(|(key, _)| key.starts_with("model.") && !is_function_of_weights(key));
    let note = |(key, [before, after]): (&String, &[Value; 2])| {
        format!("{key} = {}, and {} until now\n", shown(after), shown(before))
    };
    of_model.map(note).collect()
}

fn shown(value: &Value) -> String {
    if value.is_null() { "not set".into() } else { value.to_string() }
}

#[cfg(test)]
mod tests {
    use config::RunConfig;

    use super::*;
    use crate::layout::changes::changes;

    /// The refusal and the notes of a run that resumes with these keys, from a run file that lacks some.
    fn resumed(lacking: &str, asked: &[&str]) -> (String, String) {
        let asked: Vec<String> = asked.iter().map(ToString::to_string).collect();
        let first = ["model.position=rotary", "model.lora={rank = 2, alpha = 4.0}"].map(str::to_string);
        let of = |more: &[String]| {
            let all = [&first[..], more].concat();
            RunConfig::load("", "", &all).unwrap_or_else(|problems| panic!("{problems:?}")).to_toml()
        };
        let is_there = |line: &&str| lacking.is_empty() || !line.starts_with(lacking);
        let before: String = of(&[]).lines().filter(is_there).map(|line| format!("{line}\n")).collect();
        let changed = changes(&before, &of(&asked));
        let refused = check(Path::new("step-2"), &changed, &asked).err().map(|failure| failure.to_string());
        (refused.unwrap_or_default(), notes(&changed).concat())
    }

    #[test]
    fn another_function_is_refused_with_both_values() {
        let cases: [(&str, &[&str]); 6] = [
            (
                "model.activation = \"relu\" must be \"gelu_tanh\", as in step-2; leave it out, ",
                &["model.activation=relu"],
            ),
            ("model.norm_epsilon = 0.001 must be ", &["model.norm_epsilon=1e-3"]),
            ("model.logit_soft_cap = 30.0 must be not set, as in step-2; ", &["model.logit_soft_cap=30"]),
            ("model.rotary_pairing = \"interleaved\" must be \"half\", ", &["model.rotary_pairing=interleaved"]),
            ("model.query_scalar = 7.0 must be not set, ", &["model.query_scalar=7", "train.learning_rate=0.5"]),
            ("model.lora = {", &["model.lora={rank = 2, alpha = 8.0}"]),
        ];
        for (expected, asked) in cases {
            let (refused, _) = resumed("", asked);
            assert!(refused.starts_with(expected) && refused.lines().count() == 1, "{asked:?}: {refused}");
            assert!(refused.ends_with("; leave it out, or begin a new run of the other model"), "{refused}");
        }
        let both = resumed("", &["model.activation=relu", "model.norm_epsilon=1e-3"]).0;
        assert_eq!(both.lines().count(), 2, "{both}");
    }

    #[test]
    fn training_and_longer_sequences_are_no_other_function() {
        let none = (String::new(), String::new());
        assert_eq!(resumed("", &["train.learning_rate=0.5", "parallelism.pp=1"]), none);
        let (refused, noted) = resumed("", &["model.context=256", "model.rotary_base=50000", "model.dropout=0.5"]);
        assert_eq!(refused, "");
        assert!(noted.contains("model.context = 256, and 128 until now\n"), "{noted}");
        assert!(noted.contains("model.rotary_base = 50000.0, and 10000.0 until now\n"), "{noted}");
        // A key that is new to this version has its default in an older run.
        assert_eq!(resumed("qk_norm", &[]).0, "");
        assert!(resumed("qk_norm", &["model.qk_norm=false"]).0.contains(" must be not set"));
    }
}
