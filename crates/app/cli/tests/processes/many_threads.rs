//! SIGTERM where each rank has a thousand threads: the run ends after its step, or at the end of the grace.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use crate::harness::several::Folder;

/// Operations that are cut into parts for all threads of a rank.
const KEYS: [&str; 9] = [
    "model.hidden=128",
    "model.num_layers=2",
    "train.sequence_length=64",
    "train.global_batch=4",
    "train.steps=1000000",
    "parallelism.dp=1",
    "parallelism.pp=1",
    "parallelism.microbatch_size=2",
    "run.threads_per_rank=1024",
];

/// A run in as many processes as it has ranks, with more keys.
fn run(folder: &Folder, processes: usize, more: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
    if processes > 1 {
        command.args(["launch", "--nproc", &processes.to_string(), "--"]);
    }
    let own = [format!("parallelism.tp={processes}"), format!("run.folder={}", folder.path("run"))];
    let keys = KEYS.iter().copied().chain(own.iter().map(String::as_str)).chain(more.iter().copied());
    command.arg("train").args(keys.flat_map(|key| ["--set", key]));
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts")
}

/// The exit code and the messages of a run that receives SIGTERM when its output has a line that begins with `line`,
/// and all of its `processes` have begun the first step.
fn terminated_at(line: &str, mut child: Child, folder: &Folder, processes: usize) -> (Option<i32>, String) {
    let lines = BufReader::new(child.stdout.take().expect("output")).lines();
    let mut lines = lines.map(|line| line.expect("text"));
    let is_there = lines.any(|found| found.starts_with(line));
    let ring = folder.0.join(format!("run/failures/attempt-0001/rank-{:05}.ring", processes - 1));
    while is_there && !ring.exists() && child.try_wait().expect("a status").is_none() {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let sent = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("kill");
    let rest: Vec<String> = lines.collect();
    let mut said = String::new();
    child.stderr.take().expect("messages").read_to_string(&mut said).expect("text");
    let code = child.wait().expect("an end").code();
    assert!(is_there && sent.success(), "{said}");
    (code, format!("{}\n{said}", rest.join("\n")))
}

#[test]
fn a_run_of_a_thousand_threads_a_rank_ends_after_its_step() {
    for processes in [1, 2] {
        let folder = Folder::new(&format!("threads-{processes}"));
        let (code, said) = terminated_at("step ", run(&folder, processes, &[]), &folder, processes);
        assert_eq!(code, Some(143), "{said}");
        assert!(said.contains("by SIGTERM after step "), "{said}");
    }
}

#[test]
fn a_step_of_a_thousand_threads_a_rank_that_outlasts_the_grace_is_ended() {
    for processes in [1, 2] {
        let folder = Folder::new(&format!("grace-{processes}"));
        // One step of this takes minutes.
        let slow = ["model.hidden=1024", "model.num_layers=8", "train.global_batch=2048", "run.grace_seconds=0.1"];
        let (code, said) = terminated_at("model ", run(&folder, processes, &slow), &folder, processes);
        assert_eq!(code, Some(143), "{said}");
        assert!(said.contains("SIGTERM: the run has not ended within run.grace_seconds = 0.1; "), "{said}");
    }
}
