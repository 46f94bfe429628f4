//! Two layouts of one run, ready to run on the same text.

use std::collections::BTreeMap;

use config::EngineChoice;
use prove::EqualityClass;
use run::failure::Failure;
use run::gpus::kernels;
use run::process_group::group::{ProcessGroup, together};
use run::process_group::meeting::Meeting;
use run::process_group::member::GroupMember;
use run::process_group::process_ranks::ProcessRanks;
use run::process_group::shared_limit::shared_limit;
use run::process_group::signal_relay::end_all_while;
use run::signals::interrupt::AtOnce;
use run::text::run_text::Text;
use run::text::shared_text::OwnText;
use run::verdict::{self, Planned, Verdict};

use crate::arguments::PairArguments;
use crate::compare::comparison::{Difference, compare};

/// Two layouts of one run.
pub struct Pair {
    /// Names of the two run files.
    pub names: [String; 2],
    /// Their equality class.
    pub class: EqualityClass,
    /// The two runs, equal but for their layouts.
    pub verdicts: [Verdict; 2],
    /// Steps that are done: as many as were asked for, or all that there are.
    pub steps: u32,
}

impl Pair {
    /// Reads two run files and their text.
    ///
    /// # Errors
    /// All that is wrong with the first that is not legal; runs that differ in more than their layouts; text that
    /// cannot be read.
    pub fn open(arguments: &PairArguments) -> Result<Pair, Failure> {
        let names = [&arguments.first, &arguments.second].map(|file| file.display().to_string());
        let [first, second] = arguments.runs();
        let (first, first_locations) = first.located()?;
        let (second, second_locations) = second.located()?;
        let comparison = compare(names.clone(), &first, &second);
        let Some(class) = comparison.class else {
            return Err(Failure::Input(refusal(&names, &comparison.differences)));
        };
        let steps = arguments.steps.min(first.train.steps);
        let limits = [&first, &second].map(shared_limit);
        let first = verdict::judge(first, &first_locations, limits[0], Planned::EveryBatch).map_err(Failure::Run)?;
        let second = verdict::judge(second, &second_locations, limits[1], Planned::EveryBatch).map_err(Failure::Run)?;
        Ok(Pair { names, class, verdicts: [first, second], steps })
    }

    /// Reads the text, meets the other processes, which must do the same `command`, and does `work`; one of `signals`
    /// ends all processes. Returns nothing where process 0 has all ranks of both runs and this is another process.
    ///
    /// # Errors
    /// Text that cannot be read, failures of other processes, and that of `work`.
    pub fn with<T>(
        &self,
        command: &str,
        signals: &AtOnce,
        work: impl FnOnce(&Runs<'_>) -> Result<T, Failure>,
    ) -> Result<Option<T>, Failure> {
        let [first, second] = &self.verdicts;
        let text = OwnText::read(&first.config.data)?;
        let meeting = Meeting {
            command: format!("{command} of {} steps", self.steps),
            runs: vec![&first.config, &second.config],
            programs: vec![first.setup.fingerprint(), second.setup.fingerprint()],
            text: text.hash(),
            inputs: BTreeMap::new(),
        };
        together(&meeting, |process_group| {
            end_all_while(process_group, signals, || {
                for Verdict { config, setup, .. } in &self.verdicts {
                    process_group.check_memory(config, setup)?;
                }
                let text = Text::new(&first.config, text.tokenized(process_group)?)?;
                work(&Runs { pair: self, text, process_group })
            })
        })
    }
}

/// The two runs on their processes.
pub struct Runs<'a> {
    /// The runs.
    pub pair: &'a Pair,
    /// The text of both.
    pub text: Text,
    /// The processes.
    pub process_group: &'a ProcessGroup,
}

/// The ranks of one of the runs, as this process sees them.
pub enum RunRanks<'a> {
    /// Each process has some.
    Shared(ProcessRanks<'a>, &'a GroupMember),
    /// All are in this process.
    Here(ProcessRanks<'a>),
    /// All are in process 0, which is another one.
    InFirst,
}

impl<'a> Runs<'a> {
    /// Fresh ranks for the run of `verdict`. With `run.engine = "threads"` all are in process 0.
    ///
    /// # Errors
    /// Processes that cannot be connected.
    pub fn ranks(&self, verdict: &'a Verdict) -> Result<RunRanks<'a>, Failure> {
        let Verdict { config, setup, .. } = verdict;
        if self.process_group.is_first() {
            kernels::tell(config)?;
        }
        match (self.process_group, config.run.engine) {
            (ProcessGroup::Alone, _) => ProcessRanks::open(self.process_group, config, setup).map(RunRanks::Here),
            (ProcessGroup::Several(member), EngineChoice::Threads) => match member.is_first() {
                true => ProcessRanks::open(&ProcessGroup::Alone, config, setup).map(RunRanks::Here),
                false => Ok(RunRanks::InFirst),
            },
            (ProcessGroup::Several(member), EngineChoice::Auto | EngineChoice::Processes) => {
                Ok(RunRanks::Shared(ProcessRanks::open(self.process_group, config, setup)?, member))
            }
        }
    }
}

/// That two runs are not one, by the keys that say so.
fn refusal([first, second]: &[String; 2], differences: &[Difference]) -> String {
    let mut text = format!("{first} and {second} must be layouts of one run; these keys differ:");
    for Difference { key, values } in differences.iter().filter(|difference| !is_of_layout(&difference.key)) {
        let [first, second] = values.each_ref().map(|value| if value.is_empty() { "(not set)" } else { value });
        text += &format!("\n  {key} = {first} | {second}; --set {key}=VALUE sets both");
    }
    text
}

fn is_of_layout(key: &str) -> bool {
    key.starts_with("parallelism.") || ["train.sums", "train.offload", "run.collectives"].contains(&key)
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
            "a.toml and b.toml must be layouts of one run; these keys differ:\n  \
             train.steps = 240 | 5; --set train.steps=VALUE sets both\n  \
             data.path = (not set) | \"t\"; --set data.path=VALUE sets both"
        );
    }
}
