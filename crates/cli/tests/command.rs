//! The built command, as a user meets it: what it prints and how it exits.

use std::path::PathBuf;
use std::process::{Command, Output};

fn pleach(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pleach")).args(arguments).output().expect("the command starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A new folder for one test.
fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("pleach-cli-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).expect("a folder");
    path
}

#[test]
fn check_says_what_a_legal_run_is() {
    let output = pleach(&["check"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(
        stdout(&output),
        "model   1,239,040 parameters: 6 layers, hidden 128, 4 heads\n\
         ranks   8 = dp 2 x tp 2 x pp 2\n\
         step    2,048 tokens: 16 sequences of 128, 4 microbatches of 2 per replica\n\
         run     300 steps on embedded text, results in runs/latest\n"
    );
}

#[test]
fn check_says_everything_that_is_wrong_and_exits_with_2() {
    let folder = folder("check");
    let file = folder.join("run.toml");
    std::fs::write(&file, "[model]\nhiden = 64\n[train]\nsteps = 0\n").expect("a file");
    let name = file.display().to_string();
    let output = pleach(&["check", &name, "--set", "parallelism.tp=3"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(stdout(&output), "");
    let expected = format!(
        "{name}:2:1: `model.hiden` is no key; did you mean `model.hidden`?\n\
         --set parallelism.tp=3: parallelism.tp = 3 does not divide model.num_heads = 4; 1, 2 or 4 would\n\
         --set parallelism.tp=3: parallelism.tp = 3 does not divide model.ffn_hidden = 512; 1, 2 or 4 would\n\
         {name}:4:1: train.steps = 0 is too few; at least 1 would do\n"
    );
    assert_eq!(stderr(&output), expected);
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn the_readme_shows_what_check_says() {
    let output = pleach(&["check", "--set", "parallelism.tp=3"]);
    let readme = include_str!("../../../README.md");
    for line in stderr(&output).lines() {
        assert!(readme.contains(line), "README.md lacks: {line}");
    }
}

#[test]
fn what_cannot_be_read_or_written_is_named() {
    let absent = pleach(&["check", "no/such/run.toml"]);
    assert_eq!(absent.status.code(), Some(2));
    assert!(stderr(&absent).starts_with("no/such/run.toml cannot be read: "), "{}", stderr(&absent));

    let text = pleach(&["train", "--data", "no/such/text"]);
    assert_eq!(text.status.code(), Some(2));
    assert!(stderr(&text).starts_with("no/such/text cannot be read: "), "{}", stderr(&text));

    let folder = folder("write");
    let file = folder.join("file");
    std::fs::write(&file, "not a folder").expect("a file");
    let output = pleach(&["train", "--set", &format!("run.folder={}", file.join("runs").display())]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("cannot be written: "), "{}", stderr(&output));
    std::fs::write(&file, "short").expect("a file");
    let output = pleach(&["train", "--data", &file.display().to_string()]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        stderr(&output),
        "the training text has 5 tokens, but train.sequence_length = 128 needs 129; give more text or shorter sequences\n"
    );
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn help_names_the_exit_codes_and_wrong_arguments_exit_with_2() {
    for arguments in [&["--help"][..], &["train", "--help"], &["check", "--help"]] {
        let help = pleach(arguments);
        assert_eq!(help.status.code(), Some(0));
        assert!(stdout(&help).contains("130  interrupted"), "{}", stdout(&help));
    }
    assert_eq!(pleach(&["train", "--jsno"]).status.code(), Some(2));
    assert_eq!(pleach(&["train", "--json", "--quiet"]).status.code(), Some(2));
    assert_eq!(pleach(&[]).status.code(), Some(2));
}
