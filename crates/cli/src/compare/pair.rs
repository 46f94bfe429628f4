//! Two layouts of one run, ready to run on the same text.

use prove::EqualityClass;
use train::Engine;

use crate::arguments::PairArguments;
use crate::check::verdict::{self, Planned, Verdict};
use crate::compare::comparison::{Difference, compare};
use crate::failure::Failure;
use crate::input;
use crate::input::text::Text;
use crate::memory::machine::memory_limit;
use crate::run::engine;
use crate::run::process_ranks::check_alone;

/// Two layouts and what both learn from.
pub struct Pair {
    /// Names of the two run files.
    pub names: [String; 2],
    /// What they promise each other.
    pub class: EqualityClass,
    /// The two runs, equal but for their layouts.
    pub verdicts: [Verdict; 2],
    /// The text of both.
    pub text: Text,
    /// Steps that are done: as many as were asked for, or all that there are.
    pub steps: u32,
}

impl Pair {
    /// Reads two run files and their text.
    ///
    /// # Errors
    /// All that is wrong with the first that is not legal; runs that differ in more than their layouts; text that cannot be read.
    pub fn open(arguments: &PairArguments) -> Result<Pair, Failure> {
        let names = [&arguments.first, &arguments.second].map(|file| file.display().to_string());
        let [first, second] = arguments.runs();
        let (first, first_locations) = input::located(first.file.as_deref(), &first)?;
        let (second, second_locations) = input::located(second.file.as_deref(), &second)?;
        let comparison = compare(names.clone(), &first, &second);
        let Some(class) = comparison.class else {
            return Err(Failure::Input(refusal(&names, &comparison.differences)));
        };
        let text = Text::read(&first)?;
        let steps = arguments.steps.min(first.train.steps);
        check_alone(&first)?;
        let limit = memory_limit();
        let first = verdict::judge(first, &first_locations, limit, Planned::EveryBatch).map_err(Failure::Run)?;
        let second = verdict::judge(second, &second_locations, limit, Planned::EveryBatch).map_err(Failure::Run)?;
        Ok(Pair { names, class, verdicts: [first, second], text, steps })
    }
}

/// Fresh ranks for a run of `verdict`.
pub fn engine(verdict: &Verdict) -> Box<dyn Engine> {
    engine::engine(&verdict.config, &verdict.setup)
}

/// That two runs are not one, by the keys that say so.
fn refusal([first, second]: &[String; 2], differences: &[Difference]) -> String {
    let mut text = format!("{first} and {second} are different runs, of which nothing is promised:");
    for Difference { key, values } in differences.iter().filter(|difference| !is_of_layout(&difference.key)) {
        let [first, second] = values.each_ref().map(|value| if value.is_empty() { "(not set)" } else { value });
        text += &format!("\n  {key} = {first} | {second}; --set {key}=VALUE sets both");
    }
    text
}

fn is_of_layout(key: &str) -> bool {
    key.starts_with("parallelism.") || key == "train.sums"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_make_another_run_are_named() {
        let difference = |key: &str, values: [&str; 2]| Difference { key: key.into(), values: values.map(Into::into) };
        let differences = [
            difference("parallelism.dp", ["1", "2"]),
            difference("train.sums", ["\"single\"", "\"exact\""]),
            difference("train.steps", ["240", "5"]),
            difference("data.path", ["", "\"t\""]),
        ];
        assert_eq!(
            refusal(&["a.toml".into(), "b.toml".into()], &differences),
            "a.toml and b.toml are different runs, of which nothing is promised:\n  \
             train.steps = 240 | 5; --set train.steps=VALUE sets both\n  \
             data.path = (not set) | \"t\"; --set data.path=VALUE sets both"
        );
    }
}
