//! Ctrl-C, as a signal to a child process: the first stops after the step and keeps what there is, as do others within
//! a second; a later one ends at once.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A new folder for one run.
fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("pleach-interrupt-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).expect("a folder");
    path
}

fn train(folder: &std::path::Path, overrides: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
    command.args(["train", "--set", &format!("run.folder={}", folder.display())]);
    command.args(overrides.iter().flat_map(|set| ["--set", set]));
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts")
}

fn interrupt(child: &Child) {
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
    assert!(status.success());
}

#[test]
fn the_first_keeps_what_there_is() {
    let folder = folder("first");
    let tiny = ["model.hidden=32", "model.num_layers=2", "train.sequence_length=16", "train.steps=1000000"];
    keeps_what_there_is(&folder, train(&folder, &tiny), 1_000_000, interrupt);
    std::fs::remove_dir_all(folder).expect("removed");
}

/// The measurement after the last step takes seconds: it ends with its pass, and the step is kept.
#[test]
fn a_measurement_between_steps_ends_too() {
    let folder = folder("measurement");
    let large =
        ["model.hidden=384", "model.num_layers=4", "train.global_batch=4", "train.steps=1", "run.evaluate_tokens=0"];
    keeps_what_there_is(&folder, train(&folder, &large), 1, interrupt);
    assert!(folder.join("checkpoints/step-00000001").is_dir());
    std::fs::remove_dir_all(folder).expect("removed");
}

/// GNU `timeout` sends its signal to its child and then to its group, to which the child belongs.
#[test]
fn two_at_once_keep_what_there_is() {
    let folder = folder("twice");
    // A step of this takes longer than the time between the signals.
    let slow = ["model.hidden=256", "train.global_batch=64", "train.steps=1000000"];
    keeps_what_there_is(&folder, train(&folder, &slow), 1_000_000, |child| {
        for _ in 0..3 {
            interrupt(child);
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    });
    std::fs::remove_dir_all(folder).expect("removed");
}

/// Waits for the first of `of` steps of `child`, which `interrupts` ends then, and checks that steps and weights are
/// kept.
fn keeps_what_there_is(folder: &std::path::Path, mut child: Child, of: u32, interrupts: impl FnOnce(&Child)) {
    let lines = BufReader::new(child.stdout.take().expect("output")).lines();
    let mut lines = lines.map(|line| line.expect("text"));
    let first = format!("step {:>1$}/{of}  loss ", 1, of.to_string().len());
    assert!(lines.any(|line| line.starts_with(&first)), "a first step");
    interrupts(&child);
    let rest: Vec<String> = lines.collect();
    let steps = 1 + rest.iter().filter(|line| line.starts_with("step ")).count();
    let mut said = String::new();
    child.stderr.take().expect("messages").read_to_string(&mut said).expect("text");
    assert_eq!(child.wait().expect("an end").code(), Some(130), "{said}");
    assert!(rest.iter().any(|line| line.starts_with("stopping after this step")), "{rest:#?}");
    assert!(said.contains(&format!("ended by Ctrl-C after step {steps} of {of}")), "{said}");
    let metrics = std::fs::read_to_string(folder.join("metrics.jsonl")).expect("metrics");
    assert_eq!(metrics.lines().count(), steps);
    assert!(folder.join("weights.safetensors").is_file());
}

#[test]
fn the_second_ends_at_once() {
    let folder = folder("second");
    // A step of this takes longer than the signals.
    let slow = ["model.hidden=512", "train.global_batch=2048", "train.steps=2"];
    let mut child = train(&folder, &slow);
    let mut messages = BufReader::new(child.stdout.take().expect("output"));
    let mut first = String::new();
    messages.read_line(&mut first).expect("text");
    assert!(first.starts_with("model "), "{first}");
    // Those of the first second are one request, and the next one ends the process.
    let status = loop {
        interrupt(&child);
        std::thread::sleep(std::time::Duration::from_millis(50));
        if let Some(status) = child.try_wait().expect("a status") {
            break status;
        }
    };
    assert_eq!(status.code(), Some(130));
    assert!(!folder.join("weights.safetensors").exists());
    std::fs::remove_dir_all(&folder).expect("removed");
}

/// The mpiexec of MPICH sends SIGUSR1 to all others when one process has ended.
#[test]
fn a_warning_does_not_end_work_with_nothing_to_save() {
    let folder = folder("warned");
    let file = folder.join("run.toml");
    std::fs::write(&file, "model.hidden = 64\ntrain.steps = 3\n").expect("a run file");
    let file = file.display().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
    command.args(["prove", &file, &file, "--steps", "3"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the command starts");
    let pid = child.id();
    // From then on signals do not do what the system does with them.
    let since = std::time::Instant::now();
    while !catches(pid, 10) {
        assert!(since.elapsed() < std::time::Duration::from_secs(60), "SIGUSR1 is not handled");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(Command::new("kill").args(["-USR1", &pid.to_string()]).status().expect("kill").success());
    let output = child.wait_with_output().expect("an end");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains(", 3 steps: same bits"), "{said}");
    std::fs::remove_dir_all(&folder).expect("removed");
}

/// Whether process `pid` has a handler for signal `number`.
fn catches(pid: u32, number: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or_default().trim().to_owned();
    u64::from_str_radix(&mask, 16).is_ok_and(|mask| mask >> (number - 1) & 1 == 1)
}
