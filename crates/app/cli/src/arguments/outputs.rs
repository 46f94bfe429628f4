//! The places that the options of a command name for what it writes.

use std::path::PathBuf;

use crate::arguments::Command;
use crate::arguments::cluster::ClusterCommand;
use crate::arguments::data::{DataCommand, TokenizeArguments};

/// An option and the place that it names.
pub type OutputOption = (&'static str, PathBuf);

impl Command {
    /// Every place that the command line names for an output.
    pub fn outputs(&self) -> Vec<OutputOption> {
        let named = |option: &'static str, place: &Option<PathBuf>| place.clone().map(|place| (option, place));
        match self {
            Command::Train(train) => named("--trace", &train.trace).into_iter().collect(),
            Command::Simulate(simulate) => {
                [named("--svg", &simulate.svg), named("--trace", &simulate.trace)].into_iter().flatten().collect()
            }
            Command::Explain(explain) => named("--svg", &explain.svg).into_iter().collect(),
            Command::Plan(plan) => named("--write", &plan.write).into_iter().collect(),
            Command::Validate(validate) => named("--predictions", &validate.predictions).into_iter().collect(),
            Command::Cluster(ClusterCommand::Fit(fit)) => vec![("--out", fit.out.clone())],
            Command::Cluster(ClusterCommand::Measure(measure)) => vec![("--out", measure.out.clone())],
            Command::Report(report) => {
                let all = [("--out", &report.out), ("--csv", &report.csv), ("--tensorboard", &report.tensorboard)];
                all.into_iter().filter_map(|(option, place)| named(option, place)).collect()
            }
            Command::Forward(forward) => vec![("--out", forward.out.clone())],
            Command::Import(import) => vec![("--out", import.out.clone())],
            Command::Export(export) => vec![("--out", export.out.clone())],
            Command::Data(DataCommand::Tokenize(TokenizeArguments { out, .. })) => vec![("--out", out.clone())],
            Command::Fetch(fetch) => vec![("--out", fetch.out.clone())],
            Command::Launch(_)
            | Command::LaunchAgent
            | Command::LaunchGuard
            | Command::Check(_)
            | Command::Prove(_)
            | Command::Diff(_)
            | Command::Eval(_)
            | Command::Generate(_)
            | Command::Presets(_)
            | Command::Inspect(_)
            | Command::Blame(_)
            | Command::Doctor(_)
            | Command::MpiAnswers(_)
            | Command::Completions(_) => vec![],
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::{OsStr, OsString};

    use clap::builder::ValueParser;
    use clap::{Arg, CommandFactory, Parser};

    use crate::arguments::Arguments;

    /// Options that name what a command reads, or a program; all others that name a path are outputs.
    const INPUTS: [&str; 14] = [
        "against",
        "base",
        "cluster",
        "data",
        "diff",
        "from",
        "hosts",
        "program",
        "resume",
        "software",
        "table",
        "tokenizer",
        "tokens",
        "ssh",
    ];

    /// Each command by its names, without those that only have others below them.
    fn commands(above: &[String], command: &clap::Command) -> Vec<(Vec<String>, clap::Command)> {
        let below = command.get_subcommands().filter(|below| below.get_name() != "help").flat_map(|below| {
            let names = [above, &[below.get_name().to_string()]].concat();
            commands(&names, below)
        });
        let below: Vec<_> = below.collect();
        if below.is_empty() { vec![(above.to_vec(), command.clone())] } else { below }
    }

    fn names_a_path(option: &Arg) -> bool {
        let is_path = option.get_value_parser().type_id() == ValueParser::path_buf().type_id();
        let shown = option.get_value_names().unwrap_or_default().join(" ");
        option.get_long().is_some() && (is_path || ["FILE", "FOLDER", "PATH"].iter().any(|word| shown.contains(word)))
    }

    /// A value that the parser of `argument` takes.
    fn value(argument: &Arg) -> OsString {
        let named = argument.get_possible_values().first().map(|value| value.get_name().into());
        named.unwrap_or_else(|| if argument.get_id() == "address" { "s3://b/a".into() } else { "1".into() })
    }

    #[test]
    fn every_option_that_names_an_output_is_known() {
        let mut found = vec![];
        for (names, command) in commands(&[], &Arguments::command()) {
            let required: Vec<OsString> = command
                .get_arguments()
                .filter(|argument| argument.is_required_set())
                .flat_map(|argument| {
                    let option = argument.get_long().map(|long| format!("--{long}").into());
                    option.into_iter().chain([value(argument)])
                })
                .collect();
            for option in command.get_arguments().filter(|option| names_a_path(option)) {
                let long = option.get_long().expect("a long option");
                if INPUTS.contains(&long) {
                    continue;
                }
                let given: Vec<OsString> = if option.is_required_set() {
                    required
                        .iter()
                        .map(|word| if word == OsStr::new("1") { "place".into() } else { word.clone() })
                        .collect()
                } else {
                    required.iter().cloned().chain([format!("--{long}").into(), "place".into()]).collect()
                };
                let words = std::iter::once("pleach".into()).chain(names.iter().map(Into::into)).chain(given);
                let parsed = Arguments::try_parse_from(words).unwrap_or_else(|error| panic!("{names:?}: {error}"));
                let outputs = parsed.command.outputs();
                let is_known = outputs.iter().any(|(name, place)| *name == format!("--{long}") && place == "place");
                assert!(is_known, "{} --{long} is an output that Command::outputs lacks", names.join(" "));
                found.push(format!("{} --{long}", names.join(" ")));
            }
        }
        assert_eq!(
            found,
            [
                "train --trace",
                "explain --svg",
                "simulate --svg",
                "simulate --trace",
                "plan --write",
                "validate --predictions",
                "cluster fit --out",
                "cluster measure --out",
                "report --out",
                "report --csv",
                "report --tensorboard",
                "forward --out",
                "import --out",
                "export --out",
                "data tokenize --out",
                "fetch --out",
            ]
        );
    }
}
