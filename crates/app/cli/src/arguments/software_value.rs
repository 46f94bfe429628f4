//! `--software NAME` as one word: the option may have no value and precede a run file, so that only `=` is without
//! doubt.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use cluster::Software;
use files::{InputKind, read_text};

const OPTION: &str = "--software";

/// `arguments` with `--software=NAME` in place of `--software NAME` where NAME can only be a trainer.
pub fn joined(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut joined: Vec<OsString> = vec![];
    let mut is_over = false;
    for argument in arguments {
        is_over |= argument == "--";
        match joined.last_mut() {
            Some(option) if !is_over && option == OPTION && is_trainer(&argument) => {
                option.push("=");
                option.push(argument);
            }
            Some(_) | None => joined.push(argument),
        }
    }
    joined
}

/// Whether a word after the option is its value and not a run file: a built-in trainer, a description of one, or
/// nothing that is there.
fn is_trainer(word: &OsStr) -> bool {
    let Some(name) = word.to_str() else { return false };
    let path = Path::new(name);
    match (Software::named(name), path.exists()) {
        (Some(_), _) => true,
        (None, true) => {
            read_text(path, InputKind::Profile).is_ok_and(|text| path.is_file() && Software::from_toml(&text).is_ok())
        }
        (None, false) => !name.starts_with('-') && !name.starts_with("preset:") && !name.ends_with(".toml"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(arguments: &[&str]) -> String {
        let joined = joined(arguments.iter().map(OsString::from));
        joined.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_name_of_a_trainer_is_a_value_and_a_run_file_is_none() {
        for (arguments, expected) in [
            (&["plan", "--software", "deepspeed-bf16-2022"][..], "plan --software=deepspeed-bf16-2022"),
            (&["plan", "--software", "deepspeed", "a.toml"], "plan --software=deepspeed a.toml"),
            (&["plan", "--software", "preset:bloom-176b"], "plan --software preset:bloom-176b"),
            (&["plan", "--software", "none.toml"], "plan --software none.toml"),
            (&["plan", "--software", "--json"], "plan --software --json"),
            (&["launch", "--", "a", "--software", "b"], "launch -- a --software b"),
            (&["plan", "--software"], "plan --software"),
        ] {
            assert_eq!(line(arguments), expected);
        }
    }

    #[test]
    fn a_description_of_a_trainer_is_a_value() {
        let text = Software::names().next().and_then(Software::named).expect("a trainer");
        let file = std::env::temp_dir().join(format!("pleach-software-{}.toml", std::process::id()));
        std::fs::write(&file, text).expect("written");
        let name = file.display().to_string();
        assert_eq!(line(&["simulate", "--software", &name]), format!("simulate --software={name}"));
        std::fs::write(&file, "[model]\nhidden = 8\n").expect("written");
        assert_eq!(line(&["simulate", "--software", &name]), format!("simulate --software {name}"));
        std::fs::remove_file(&file).expect("removed");
    }
}
