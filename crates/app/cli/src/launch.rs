//! `pleach launch`: what its arguments ask for, and the words of its command.

use clap::{CommandFactory, Parser};
use run::failure::Failure;
use run::launch::spec::{Language, LaunchSpec, Training};

use crate::arguments::launch::LaunchArguments;
use crate::arguments::{Arguments, Command};
use crate::screen::output::print;

/// Starts the processes and supervises them to their end, or prints what it would start.
///
/// # Errors
/// Input that cannot be used, before a process is started; the first failure of a process.
pub fn launch(arguments: &LaunchArguments) -> Result<(), Failure> {
    let spec = LaunchSpec {
        processes: arguments.nproc as usize,
        hosts: arguments.hosts.clone(),
        restarts: arguments.restarts,
        rendezvous: arguments.rendezvous.clone(),
        ssh: arguments.ssh.clone(),
        program: arguments.program.clone(),
        command: arguments.command.clone(),
        language: LANGUAGE,
    };
    if arguments.dry_run { print(&run::launch::shown(&spec)?) } else { run::launch::launch(&spec) }
}

/// The commands of pleach.
pub const LANGUAGE: Language = Language { training, has_command };

fn training(words: &[String]) -> Result<Option<Training>, Failure> {
    let words = std::iter::once("pleach").chain(words.iter().map(String::as_str));
    let parsed = Arguments::try_parse_from(words).map_err(|error| Failure::Input(error.to_string()))?;
    let Command::Train(train) = parsed.command else { return Ok(None) };
    let printing = [("--json", train.json), ("--quiet", train.quiet)];
    let printing = printing.into_iter().filter(|(_, is_given)| *is_given).map(|(option, _)| option.into());
    Ok(Some(Training { spec: train.spec(), printing: printing.collect() }))
}

fn has_command(word: &str) -> bool {
    Arguments::command().get_subcommands().any(|command| command.get_name() == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_about_printing_are_kept() {
        let of = |words: &[&str]| training(&words.iter().map(ToString::to_string).collect::<Vec<_>>());
        let trained = of(&["train", "--json", "--set", "train.steps=3"]).expect("known").expect("it trains");
        assert_eq!(
            (trained.printing, trained.spec.run.overrides),
            (vec!["--json".into()], vec!["train.steps=3".into()])
        );
        assert!(of(&["doctor"]).expect("known").is_none() && of(&["trian"]).is_err());
        assert!(has_command("train") && !has_command("sh"));
    }
}
