//! A run that begins with weights has their model: its run file says nothing else about it.

use super::keys::{Keys, Work};
use super::reader::OfWeights;
use super::source::{self, Entries, Entry, Value};
use super::value::quoted;
use super::{ANY_VOCABULARY, declared, model};
use crate::data_spec::{DataSpec, Marks, SourceSpec, TokenizerSpec};
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
    /// The tokens around the documents of that text: those of the run, where it has the same tokenizer and its file
    /// says nothing else.
    pub marks: &'a Marks,
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
        let (mut text, reader) = (String::new(), declared());
        let mut keys = Keys::new(Work::Write(&mut text));
        model::visit(keys.section("model"), &mut self.model.clone(), ANY_VOCABULARY);
        keys.section("data");
        text.push_str(&format!("tokenizer = {}\n", quoted(&self.tokenizer.to_string())));
        if !entries.contains_key("data.tokenizer") {
            let Marks { begin, end } = self.marks;
            text.push_str(&format!("begin = {}\nend = {}\n", quoted(begin), quoted(end)));
        }
        let (own, mut problems) = source::parse(self.name, &text);
        for (key, own) in own {
            let is_free = reader.of_weights(&key) == Some(OfWeights::Training) || key.starts_with("data.");
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
    use crate::is_function_of_weights;

    #[test]
    fn keys_of_a_model_are_of_its_function_unless_they_say_otherwise() {
        for key in ["model.lora", "model.activation", "model.norm_epsilon", "model.window", "model.rotary_fraction"] {
            assert!(is_function_of_weights(key), "{key}");
        }
        for key in ["model.dropout", "model.z_loss", "model.context", "model.rotary_scaling", "train.learning_rate"] {
            assert!(!is_function_of_weights(key), "{key}");
        }
    }
}
