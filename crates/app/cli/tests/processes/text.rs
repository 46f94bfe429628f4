//! Files of a run in several processes: text that a host lacks comes from process 0; other text and other weights are
//! refused.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use crate::harness::several::{Folder, TINY, succeeds};
use crate::harness::{free_port, stderr, stdout};

const PROCESSES: usize = 3;

/// Keys that make a run of six ranks.
const SIX: &[&str] = &["parallelism.dp=1", "parallelism.tp=1", "parallelism.pp=6", "model.num_layers=6"];

fn train(keys: &[String], at: &Path) -> Command {
    let mut arguments = vec!["train".to_string()];
    for key in TINY.iter().chain(SIX).map(ToString::to_string).chain(keys.iter().cloned()) {
        arguments.extend(["--set".into(), key]);
    }
    command(&arguments, at)
}

fn command(arguments: &[String], at: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
    command.args(arguments).current_dir(at).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// `command` in processes of which number `n` has the working directory `n` of `folder`, so that each sees files of its
/// own.
fn in_own_directories(folder: &Folder, command: impl Fn(&Path) -> Command) -> Vec<Output> {
    let port = free_port();
    let start = |process: usize| -> Child {
        let mut command = command(&folder.0.join(process.to_string()));
        command.env("PLEACH_PROCESS", process.to_string()).env("PLEACH_PROCESSES", PROCESSES.to_string());
        command.env("PLEACH_RENDEZVOUS", format!("127.0.0.1:{port}")).env("PLEACH_TOKEN", "5a".repeat(32));
        command.spawn().expect("a process")
    };
    let children: Vec<Child> = (0..PROCESSES).map(start).collect();
    children.into_iter().map(|child| child.wait_with_output().expect("an end")).collect()
}

/// Lines of text, another one for each seed.
fn text(seed: usize, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 64);
    let mut line = 0;
    while text.len() < bytes {
        text += &format!("the line {line} of text {seed} says {}\n", (line * 7919 + seed) % 1009);
        line += 1;
    }
    text
}

/// A working directory for each process, with the files that `has` gives it.
fn directories(folder: &Folder, has: impl Fn(usize) -> Vec<(&'static str, String)>) {
    for process in 0..PROCESSES {
        let at = folder.0.join(process.to_string());
        fs::create_dir_all(&at).expect("a folder");
        for (name, content) in has(process) {
            let path = at.join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, content).expect("a file");
        }
    }
}

#[test]
fn text_that_a_process_lacks_comes_from_process_0() {
    let folder = Folder::new("lacks");
    // More than one piece of 4 MiB, and a folder of two kinds of files.
    let large = || vec![("large.txt", text(1, 9 << 20))];
    let small = || {
        let lines = (0..50).map(|line| format!("{{\"text\": \"document {line}\"}}\n")).collect();
        vec![("folder/below/a.jsonl", lines), ("folder/b.md", text(2, 20_000)), ("folder/.hidden.md", text(3, 99))]
    };
    directories(&folder, |process| match process {
        0 => [large(), small()].concat(),
        1 => small(),
        _ => vec![],
    });
    for (index, (path, tokenizer)) in [("large.txt", "bytes"), ("folder", "bpe:300")].into_iter().enumerate() {
        let keys = |name: &str| {
            let data = [format!("data.path={path}"), format!("data.tokenizer={tokenizer}"), folder.run(name)];
            [&data[..], &["run.evaluate_every=2".into(), "data.held_out=0.001".into()]].concat()
        };
        let [threads, processes] = [format!("threads-{index}"), format!("processes-{index}")];
        succeeds(&train(&keys(&threads), &folder.0.join("0")).output().expect("a run"));
        for (process, output) in in_own_directories(&folder, |at| train(&keys(&processes), at)).iter().enumerate() {
            assert_eq!(output.status.code(), Some(0), "process {process}: {}{}", stdout(output), stderr(output));
            assert!(process == 0 || output.stderr.is_empty(), "process {process}: {}", stderr(output));
        }
        assert_eq!(folder.losses(&processes), folder.losses(&threads), "{path}");
        assert!(folder.weights(&processes) == folder.weights(&threads), "{path}");
        let tokenizer = |name: &str| {
            let file = if tokenizer == "bytes" { "tokenizer.txt" } else { "tokenizer.json" };
            fs::read(folder.0.join(name).join(file)).expect("a tokenizer")
        };
        assert!(tokenizer(&processes) == tokenizer(&threads), "{path}");
    }
    let left = fs::read_dir(std::env::temp_dir()).expect("a folder").flatten();
    let left: Vec<String> = left.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    assert!(!left.iter().any(|name| name.starts_with("pleach-text-")), "received files are removed: {left:?}");
}

#[test]
fn validation_that_a_process_lacks_comes_from_process_0() {
    let folder = Folder::new("lacks-validation");
    directories(&folder, |process| match process {
        0 => vec![("a.txt", text(1, 30_000)), ("held/b.txt", text(2, 20_000)), ("c.txt", text(3, 20_000))],
        // Only a text of validation is missing here, and there everything is.
        1 => vec![("a.txt", text(1, 30_000)), ("c.txt", text(3, 20_000))],
        _ => vec![],
    });
    let keys = |name: &str| {
        let validation = "data.validation=[{ name = \"held\", path = \"held\" }, { name = \"c\", path = \"c.txt\" }]";
        let data = ["data.path=a.txt".to_string(), "data.tokenizer=bytes".into(), validation.into()];
        [&data[..], &[folder.run(name), "run.evaluate_every=2".into()]].concat()
    };
    succeeds(&train(&keys("threads"), &folder.0.join("0")).output().expect("a run"));
    for (process, output) in in_own_directories(&folder, |at| train(&keys("processes"), at)).iter().enumerate() {
        assert_eq!(output.status.code(), Some(0), "process {process}: {}{}", stdout(output), stderr(output));
    }
    let validated = |name: &str| -> Vec<String> {
        let metrics = fs::read_to_string(folder.0.join(name).join("metrics.jsonl")).expect("metrics");
        let values = metrics.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
        values
            .filter_map(|value| Some(format!("{} {}", value.get("validation")?, value.get("validation_loss")?)))
            .collect()
    };
    assert!(!validated("threads").is_empty());
    assert_eq!(validated("processes"), validated("threads"));
    assert!(folder.weights("processes") == folder.weights("threads"));
}

/// The message of process 0, which prints for all: they end with exit code 1.
fn said_once(outputs: Vec<Output>) -> String {
    for (process, output) in outputs.iter().enumerate() {
        assert_eq!(output.status.code(), Some(1), "{}", stderr(output));
        assert!(process == 0 || output.stderr.is_empty(), "process {process}: {}", stderr(output));
    }
    outputs.first().map(stderr).expect("process 0")
}

#[test]
fn a_process_with_another_text_is_named() {
    let folder = Folder::new("differs");
    directories(&folder, |process| vec![("text.txt", text(usize::from(process == 2), 30_000))]);
    let keys = ["data.path=text.txt".to_string(), folder.run("run"), "train.steps=1".into()];
    let message = said_once(in_own_directories(&folder, |at| train(&keys, at)));
    assert!(message.starts_with("process 2 (host ") && message.contains(") reads another text: hash "), "{message}");
    assert!(!folder.0.join("run").exists(), "nothing is written");
}

#[test]
fn text_that_process_0_lacks_is_an_error() {
    let folder = Folder::new("none");
    directories(&folder, |process| if process == 0 { vec![] } else { vec![("text.txt", text(1, 30_000))] });
    let mut keys = vec!["data.path=text.txt".to_string(), folder.run("run"), "train.steps=1".into()];
    keys.push("run.rendezvous_seconds=3".into());
    let outputs = in_own_directories(&folder, |at| train(&keys, at));
    assert_eq!(outputs[0].status.code(), Some(2), "{}", stderr(&outputs[0]));
    assert!(stderr(&outputs[0]).starts_with("text.txt cannot be read: "), "{}", stderr(&outputs[0]));
    assert_eq!(outputs[1].status.code(), Some(1), "{}", stderr(&outputs[1]));
}

#[test]
fn a_process_with_other_weights_is_named() {
    let folder = Folder::new("weights");
    for process in 0..PROCESSES {
        let at = folder.0.join(process.to_string());
        fs::create_dir_all(&at).expect("a folder");
        let seed = format!("train.seed={}", u32::from(process == 1));
        let keys = ["run.folder=run".to_string(), "run.engine=threads".into(), "train.steps=1".into(), seed];
        succeeds(&train(&keys, &at).output().expect("a run"));
        if process > 0 {
            // Only the weights differ.
            fs::copy(folder.0.join("0/run/run.toml"), at.join("run/run.toml")).expect("a run file");
        }
    }
    let arguments = ["eval", "--from", "run", "--set", "parallelism.pp=3", "--set", "run.engine=processes"];
    let message = said_once(in_own_directories(&folder, |at| command(&arguments.map(String::from), at)));
    assert!(message.starts_with("process 1 (host "), "{message}");
    assert!(message.contains(") reads another file run/weights.safetensors: hash "), "{message}");
}
