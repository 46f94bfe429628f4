//! A run that begins with weights has their model: its run file says nothing else about it.

use super::source::{self, Entries, Entry, Value};
use super::{model, writer::Writer};
use crate::data_spec::{DataSpec, SourceSpec, TokenizerSpec};
use crate::model::ModelSpec;
use crate::problem::Problem;

/// Weights that a run begins with.
#[derive(Clone, Copy, Debug)]
pub struct GivenWeights<'a> {
    /// Their name in messages.
    pub name: &'a str,
    /// Their model.
    pub model: &'a ModelSpec,
    /// How the text that they have learned from became tokens: that of the run, unless its file says another.
    pub tokenizer: &'a TokenizerSpec,
}

/// Keys of a model that are not part of the function that its weights compute.
const OF_TRAINING: [&str; 7] = [
    "model.dropout",
    "model.attention_dropout",
    "model.padding_token",
    "model.init_std",
    "model.output_init_std",
    "model.xavier_gain",
    "model.z_loss",
];

/// Keys of a model that stretch what its weights compute to longer sequences.
const OF_LENGTH: [&str; 9] = [
    "model.context",
    "model.local_rotary_base",
    "model.rotary_base",
    "model.rotary_high_turns",
    "model.rotary_low_turns",
    "model.rotary_magnitude",
    "model.rotary_original_context",
    "model.rotary_scaling",
    "model.rotary_scaling_factor",
];

/// Whether a key is part of the function that weights compute, so that a run may not resume with another value: every
/// key of `[model]` but those of training and of longer sequences.
pub fn is_function_of_weights(key: &str) -> bool {
    key.starts_with("model.") && !OF_TRAINING.contains(&key) && !OF_LENGTH.contains(&key)
}

impl GivenWeights<'_> {
    /// That neither they nor the run name a tokenizer for the text of `data`.
    pub(super) fn lacks_tokenizer(&self, data: &DataSpec) -> Option<Problem> {
        let is_unknown = [self.tokenizer, &data.tokenizer].into_iter().all(|own| *own == TokenizerSpec::OfTokenFiles);
        let is_text = !data.sources.iter().any(SourceSpec::is_tokens);
        let problem = || Problem::of_key(self.name, "has no tokenizer.json", "copy it there, or set data.tokenizer");
        (is_unknown && is_text).then(problem)
    }

    /// Adds to `entries` what they leave out of the model, and the tokenizer. Returns what they say of another model.
    pub(super) fn take_over(&self, entries: &mut Entries) -> Vec<Problem> {
        let mut writer = Writer::default();
        model::write(self.model, &mut writer);
        writer.section("data");
        writer.text("tokenizer", &self.tokenizer.to_string());
        let (own, mut problems) = source::parse(self.name, &writer.finish());
        for (key, own) in own {
            let is_free = OF_TRAINING.contains(&key.as_str()) || key == "data.tokenizer";
            match entries.get(&key) {
                Some(_) if is_free => {}
                Some(Entry { value, location }) if !says_the_same(value, &own.value) => {
                    let rule = format!("is not the model of {}, whose {key} is {}", self.name, own.value);
                    let problem = Problem::of_value(&key, value, rule, "leave it out").at(Some(location.clone()));
                    problems.push(problem);
                    entries.insert(key, own);
                }
                Some(_) => {}
                None => {
                    entries.insert(key, own);
                }
            }
        }
        problems
    }
}

/// Whether two values of one key mean the same: `1` and `1.0` do, and `true` and `"true"`.
fn says_the_same(one: &Value, other: &Value) -> bool {
    match (one.number(), other.number()) {
        (Some(one), Some(other)) => one == other,
        (None, None) => bare(one) == bare(other),
        (Some(_), None) | (None, Some(_)) => false,
    }
}

fn bare(value: &Value) -> String {
    value.text().map_or_else(|| value.to_string(), str::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_file::known_keys;

    #[test]
    fn keys_of_a_model_are_of_its_function_unless_they_are_listed() {
        let known = known_keys();
        for listed in OF_TRAINING.iter().chain(&OF_LENGTH) {
            assert!(known.iter().any(|key| key == listed) && !is_function_of_weights(listed), "{listed}");
        }
        for key in ["model.lora", "model.activation", "model.norm_epsilon", "model.window", "model.rotary_fraction"] {
            assert!(known.iter().any(|known| known == key) && is_function_of_weights(key), "{key}");
        }
        assert!(!is_function_of_weights("train.learning_rate"));
    }
}
