//! Commands other than `train` in several processes: what they print and write is that of one process.

use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};

use crate::harness::several::{Folder, launched, on_threads, succeeds};
use crate::harness::{pleach, prints, stderr, stdout};

/// The options of a layout on four ranks.
const LAYOUTS: &[&[&str]] = &[
    &["--set", "parallelism.tp=2", "--set", "parallelism.pp=2"],
    &["--set", "parallelism.dp=4", "--set", "parallelism.zero=3", "--set", "run.transport=tcp"],
];

/// A run of one step, of which the commands read weights.
fn trained(folder: &Folder) -> String {
    on_threads(&[&folder.run("run"), "train.steps=1"]);
    folder.path("run")
}

fn printed_by_processes(number: &str, command: &[&str]) -> String {
    let output = launched(number, command);
    succeeds(&output);
    assert_eq!(stderr(&output), "", "only process 0 speaks");
    stdout(&output)
}

#[test]
fn a_loss_measured_in_processes_is_that_of_threads() {
    let folder = Folder::new("eval");
    let run = trained(&folder);
    for layout in LAYOUTS {
        let command = [&["eval", "--from", &run], *layout].concat();
        let expected = prints(&command);
        assert!(expected.starts_with("loss "), "{expected}");
        for number in ["2", "4"] {
            assert_eq!(printed_by_processes(number, &command), expected, "{layout:?} in {number} processes");
        }
    }
}

#[test]
fn a_text_generated_in_processes_is_that_of_threads() {
    let folder = Folder::new("generate");
    let run = trained(&folder);
    let layout = LAYOUTS[0];
    for sampling in ["--temperature=0", "--seed=7"] {
        let command =
            [&["generate", "--from", &run, "--prompt", "ab", "--max-tokens", "24", sampling], layout].concat();
        let expected = pleach(&command).stdout;
        assert!(expected.len() > 20, "{expected:?}");
        for number in ["2", "4"] {
            let output = launched(number, &command);
            succeeds(&output);
            assert_eq!(output.stdout, expected, "{sampling} in {number} processes");
            assert_eq!(stderr(&output), "");
        }
    }
}

/// Four sequences of eight tokens.
const TOKENS: &str = r#"{"input_ids": [[1,2,3,4,5,6,7,8],[9,8,7,6,5,4,3,2],[11,12,13,14,15,16,17,18],[4,4,4,4,5,5,5,5]],
    "labels": [[2,3,4,5,6,7,8,-100],[8,7,6,5,4,3,2,1],[12,13,14,15,16,17,18,19],[4,4,4,5,5,5,5,-100]]}"#;

#[test]
fn logits_and_gradients_of_processes_are_those_of_threads() {
    let folder = Folder::new("forward");
    let (run, tokens) = (trained(&folder), folder.path("tokens.json"));
    fs::write(&tokens, TOKENS).expect("a file");
    for (index, layout) in LAYOUTS.iter().enumerate() {
        let command = |out: &str| -> Vec<String> {
            let fixed = ["forward", "--from", &run, "--tokens", &tokens, "--grads", "--out", out];
            fixed.iter().chain(*layout).map(ToString::to_string).collect()
        };
        let results = |out: &str| fs::read(folder.0.join(out)).expect("results");
        let threads = command(&folder.path("threads"));
        succeeds(&pleach(&threads.iter().map(String::as_str).collect::<Vec<_>>()));
        for number in ["2", "4"] {
            let name = format!("processes-{index}-{number}");
            let processes = command(&folder.path(&name));
            let output = launched(number, &processes.iter().map(String::as_str).collect::<Vec<_>>());
            succeeds(&output);
            assert_eq!(stderr(&output).lines().count(), 1, "process 0 tells of the file: {}", stderr(&output));
            assert!(results(&name) == results("threads"), "{layout:?} in {number} processes");
        }
    }
}

#[test]
fn a_command_that_does_not_fit_its_processes_is_refused() {
    let folder = Folder::new("misfits");
    let run = trained(&folder);
    let output = launched("2", &["eval", "--from", &run]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let expected = "pleach launch started 2 processes, and the run has 1 rank; start 1 process, or give the run ranks, such as \
                    --set parallelism.tp=2\n";
    assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    let output = launched("2", &["eval", "--from", &run, "--set", "parallelism.tp=2", "--data", "/nowhere"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("/nowhere cannot be read"), "{}", stderr(&output));
}

#[test]
fn ranks_that_are_threads_are_in_process_0() {
    let folder = Folder::new("first");
    let run = trained(&folder);
    let command = ["eval", "--from", &run, "--set", "run.engine=threads"];
    assert_eq!(printed_by_processes("3", &command), prints(&command));
}

#[test]
fn work_without_ranks_is_done_once() {
    let folder = Folder::new("once");
    let run = trained(&folder);
    for command in [&["presets"][..], &["inspect", &run, "--verify"]] {
        assert_eq!(printed_by_processes("3", command), prints(command), "{command:?}");
    }
    let checked = printed_by_processes("2", &["check"]);
    assert_eq!(checked.matches("ranks in 2 processes").count(), 1, "{checked}");
    let output = launched("3", &["export", &run, "--out", &folder.path("exported")]);
    succeeds(&output);
    assert!(!stderr(&output).contains("[1]"), "{}", stderr(&output));
    assert!(folder.0.join("exported/model.safetensors").exists());
}

#[test]
fn a_signal_ends_a_text_in_all_processes() {
    let folder = Folder::new("signal");
    let run = trained(&folder);
    let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
    command.args(["launch", "--nproc", "2", "--", "generate", "--from", &run, "--prompt", "ab"]);
    command.args(["--max-tokens", "100000000", "--set", "parallelism.tp=2"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a text");
    let mut text = child.stdout.take().expect("an output");
    text.read_exact(&mut [0; 16]).expect("a text");
    let sent = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("kill");
    assert!(sent.success());
    text.read_to_end(&mut vec![]).expect("an end");
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(143), "{}", stderr(&output));
    assert_eq!(stderr(&output).matches("ended by SIGTERM\n").count(), 1, "{}", stderr(&output));
}
