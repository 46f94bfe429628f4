//! Options that do not exist because they are keys of the run file: `--lr`, `--tp`, and all that Megatron-LM calls by
//! other names; and arguments in a place where a command expects another one.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory};

use crate::arguments::Arguments;

/// The remedy for the unknown option of `error`, given to the command `name`; `None` if it means no key,
/// or the command takes none.
pub fn key_meant(error: &clap::Error, name: &str) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument || !takes_keys(&Arguments::command(), name) {
        return None;
    }
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return None };
    if let Some(answer) = config::answer_to_option(option) {
        return Some(format!("{option} {answer}\n"));
    }
    let key = config::key_of_option(option)?;
    Some(format!("{option} is {key} here, a key of the run file; write --set {key}=VALUE\n"))
}

/// The remedy for an argument of `error` that the command `name` expects elsewhere: a run file with `--resume`, a
/// folder without `--from`. `None` for others.
pub fn place_meant(error: &clap::Error, name: &str) -> Option<String> {
    let strings = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.as_str()],
        Some(ContextValue::Strings(texts)) => texts.iter().map(String::as_str).collect(),
        Some(_) | None => vec![],
    };
    let argument = *strings(ContextKind::InvalidArg).first()?;
    let takes = |option: &str| {
        let all = Arguments::command();
        all.find_subcommand(name)
            .is_some_and(|command| command.get_arguments().any(|argument| argument.get_long() == Some(option)))
    };
    let in_conflict = [strings(ContextKind::InvalidArg), strings(ContextKind::PriorArg)].concat();
    let conflicts = |beginning: &str| in_conflict.iter().any(|argument| argument.starts_with(beginning));
    let kind = error.kind();
    if kind == ErrorKind::ArgumentConflict && conflicts("[RUN.toml]") && conflicts("--resume ") {
        let remedy = "--resume reads the run file of its folder: leave the other one out, and change keys with --set";
        return Some(format!("{remedy}\n"));
    }
    let is_folder = kind == ErrorKind::UnknownArgument && !argument.starts_with('-');
    (is_folder && takes("from") && !takes("resume"))
        .then(|| format!("{name} takes a run by --from: write `pleach {name} --from {argument}`\n"))
}

fn takes_keys(all: &Command, name: &str) -> bool {
    all.find_subcommand(name)
        .is_some_and(|command| command.get_arguments().any(|argument| argument.get_long() == Some("set")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn remedy(arguments: &[&str]) -> Option<String> {
        let error = Arguments::try_parse_from(std::iter::once("pleach").chain(arguments.iter().copied()));
        key_meant(&error.expect_err("an unknown option"), arguments[0])
    }

    #[test]
    fn options_that_are_keys_are_reported() {
        let expected = |text: &str| Some(text.to_string());
        assert_eq!(
            remedy(&["train", "--lr", "1e-3"]),
            expected(
                "--lr is train.learning_rate here, a key of the run file; write --set train.learning_rate=VALUE\n"
            )
        );
        assert_eq!(
            remedy(&["check", "--tensor-model-parallel-size=2"]),
            expected(
                "--tensor-model-parallel-size is parallelism.tp here, a key of the run file; write --set parallelism.tp=VALUE\n"
            )
        );
        assert_eq!(
            remedy(&["explain", "--steps", "5"]),
            expected("--steps is train.steps here, a key of the run file; write --set train.steps=VALUE\n")
        );
        assert_eq!(
            remedy(&["train", "--wandb"]),
            expected("--wandb is not built in; docs/metrics.md has a script that sends metrics.jsonl there\n")
        );
        assert_eq!(
            remedy(&["check", "--ep", "2"]),
            expected("--ep is parallelism.ep here, a key of the run file; write --set parallelism.ep=VALUE\n")
        );
        assert_eq!(
            remedy(&["check", "--expert-tensor-parallel-size", "2"]),
            expected(
                "--expert-tensor-parallel-size is tensor parallelism within experts, an axis that runs do not have; \
                 use dp, cp, tp and pp\n"
            )
        );
        assert_eq!(
            remedy(&["plan", "--cp", "2"]),
            expected("--cp is parallelism.cp here, a key of the run file; write --set parallelism.cp=VALUE\n")
        );
        let placed = |arguments: &[&str]| {
            let error = Arguments::try_parse_from(std::iter::once("pleach").chain(arguments.iter().copied()));
            place_meant(&error.expect_err("an argument in a wrong place"), arguments[0])
        };
        let resumed =
            "--resume reads the run file of its folder: leave the other one out, and change keys with --set\n";
        assert_eq!(placed(&["train", "a.toml", "--resume", "runs/a"]), expected(resumed));
        assert_eq!(placed(&["train", "--resume", "runs/a", "a.toml"]), expected(resumed));
        for command in ["eval", "generate", "forward"] {
            let told = format!("{command} takes a run by --from: write `pleach {command} --from runs/a`\n");
            assert_eq!(placed(&[command, "runs/a"]), expected(&told));
        }
        assert_eq!(placed(&["train", "--from", "a", "--resume", "b"]), None);
        assert_eq!(remedy(&["train", "--batch"]), None);
        assert_eq!(remedy(&["doctor", "--steps"]), None);
        assert_eq!(remedy(&["trian", "--steps"]), None);
    }
}
