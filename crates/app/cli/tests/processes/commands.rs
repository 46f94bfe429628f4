//! Commands other than `train` in several processes: what they print and write is that of one process.

use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::harness::several::{Folder, launched, on_threads, processes_of, succeeds};
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
fn a_failure_of_process_0_is_printed_once() {
    let folder = Folder::new("printed-once");
    let run = trained(&folder);
    // Each process refuses the first by itself; process 0 fails in the others once all have met.
    let nowhere = "run.folder=/proc/self/run";
    let commands: [(&[&str], &str); 3] = [
        (&["eval", "--from", "/nowhere", "--set", "parallelism.tp=4"], "/nowhere/run.toml cannot be read: "),
        (&["train", "--set", nowhere], "/proc/self/run/checkpoints cannot be written: "),
        (&["eval", "--from", &run, "--set", "parallelism.tp=2", "--data", "/nowhere"], "/nowhere cannot be read"),
    ];
    for (command, expected) in commands {
        let output = launched("2", command);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{command:?}: {text}");
        assert_eq!((text.matches(expected).count(), text.lines().count()), (1, 2), "{command:?}: {text}");
        assert!(
            text.ends_with("process 0 (host localhost) failed with exit code 2, and all others were ended\n"),
            "{text}"
        );
    }
}

#[test]
fn too_few_descriptors_are_refused_before_the_meeting() {
    let folder = Folder::new("descriptors");
    let of = |limit: &str, processes: &str| {
        let script = format!("ulimit -n {limit}; exec \"$0\" launch --nproc {processes} -- train --set \"$1\"");
        let command = ["-c", &script, env!("CARGO_BIN_EXE_pleach"), &folder.run("run")];
        Command::new("sh").args(command).output().expect("a shell")
    };
    let hard = |limit| {
        format!(" (the hard limit is {limit}: raise it as root, in limits.conf or as LimitNOFILE of the service)\n")
    };
    let output = of("20", "2");
    let expected = "open files: ulimit -n = 20 must be at least 26 for process 0 of 2 with 4 ranks; use `ulimit -n 26` before the \
                    start on each host";
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let text = stderr(&output);
    assert!(text.starts_with(&format!("{expected}{}", hard(20))), "{text}");
    assert_eq!(text.lines().count(), 2, "{text}");
    let output = of("20", "8");
    let expected = "open files: ulimit -n = 20 must be at least 28 for a launcher of 8 processes; use `ulimit -n 28` before the \
                    start on each host";
    assert_eq!((output.status.code(), stderr(&output)), (Some(2), format!("{expected}{}", hard(20))));
    assert!(!folder.0.join("run").exists());
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

/// Process ids of `number` processes of a launcher, once their ranks are connected.
fn met_processes(launcher: &Child, number: usize) -> Vec<u32> {
    // The thread of sockets starts then.
    let has_met = |process: &u32| {
        let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok()).any(|name| name == "sockets\n")
    };
    loop {
        let processes = processes_of(launcher.id());
        if processes.len() == number && processes.iter().all(has_met) {
            return processes;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn ctrl_c_to_one_process_of_a_proof_ends_all_with_its_exit_code() {
    let folder = Folder::new("proof");
    let file = folder.path("run.toml");
    // Steps of minutes.
    fs::write(&file, "[model]\nhidden = 512\n[train]\nglobal_batch = 256\n").expect("a file");
    for reached in [0, 1] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
        command.args(["launch", "--nproc", "2", "--", "prove", &file, &file]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a proof");
        let processes = met_processes(&child, 2);
        assert!(Command::new("kill").args(["-INT", &processes[reached].to_string()]).status().expect("kill").success());
        let output = child.wait_with_output().expect("an end");
        assert_eq!(output.status.code(), Some(130), "process {reached}: {}", stderr(&output));
        let text = stderr(&output);
        let is_last = |process: usize| text == format!("process {process} (host localhost) was stopped by signal 2\n");
        assert!(is_last(0) || is_last(1), "process {reached}: {text}");
    }
}
