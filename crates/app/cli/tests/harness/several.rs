//! Runs in several processes, and the same on threads.

use std::fs;
use std::path::PathBuf;
use std::process::Output;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{pleach, stderr, stdout};

/// A run of a moment on eight ranks, with dropout and shards.
pub const TINY: &[&str] = &[
    "model.num_layers=4",
    "model.hidden=16",
    "model.num_heads=2",
    "model.context=16",
    "model.dropout=0.1",
    "data.tokenizer=bytes",
    // A run ends with a measurement of all held-out text: the usual share takes many times as long as the steps.
    "data.held_out=0.001",
    "parallelism.dp=2",
    "parallelism.tp=2",
    "parallelism.pp=2",
    "parallelism.microbatch_size=1",
    "train.global_batch=4",
    "train.steps=4",
    "run.save_every=2",
    "run.rendezvous_seconds=120",
    "run.heartbeat_seconds=60",
];

/// Two replicas of experts, each divided over two ranks, in two stages.
pub const EXPERTS_OF_TWO: &[&str] = &[
    "model.experts=4",
    "model.expert_hidden=256",
    "model.biases=attention",
    "parallelism.dp=4",
    "parallelism.tp=1",
    "parallelism.ep=2",
];

/// A folder that ends with its test.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        // Tests that run at the same time may choose the same name.
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("pleach-processes-{name}-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    pub fn run(&self, name: &str) -> String {
        format!("run.folder={}", self.path(name))
    }

    pub fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    pub fn weights(&self, name: &str) -> Vec<u8> {
        fs::read(self.0.join(name).join("weights.safetensors")).expect("weights")
    }

    /// The losses of all steps, as they are written.
    pub fn losses(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.0.join(name).join("metrics.jsonl")).expect("metrics");
        let loss = |line: &str| {
            let record: serde_json::Value = serde_json::from_str(line).expect("JSON");
            format!("{} {}", record["step"], record["loss"])
        };
        text.lines().map(loss).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub fn with_keys<'a>(command: &[&'a str], keys: &[&'a str]) -> Vec<&'a str> {
    let keys = TINY.iter().chain(keys).flat_map(|key| ["--set", key]);
    command.iter().copied().chain(keys).collect()
}

#[track_caller]
pub fn succeeds(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(output), stderr(output));
}

#[track_caller]
pub fn on_threads(keys: &[&str]) {
    succeeds(&pleach(&with_keys(&["train"], keys)));
}

/// Trains in `number` processes.
pub fn in_processes(number: &str, keys: &[&str]) -> Output {
    pleach(&with_keys(&["launch", "--nproc", number, "--", "train"], keys))
}

/// Runs `command` in `number` processes.
pub fn launched(number: &str, command: &[&str]) -> Output {
    pleach(&[&["launch", "--nproc", number, "--"], command].concat())
}

/// Process ids of the processes that the launcher `launcher` has started, by their numbers; its other children are not
/// among them.
pub fn processes_of(launcher: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{launcher}/task/{launcher}/children")).unwrap_or_default();
    let number = |child: &str| -> Option<usize> {
        let environment = fs::read(format!("/proc/{child}/environ")).ok()?;
        let mut variables = environment.split(|byte| *byte == 0).filter_map(|pair| std::str::from_utf8(pair).ok());
        variables.find_map(|pair| pair.strip_prefix("PLEACH_PROCESS=")?.parse().ok())
    };
    let process = |child: &str| Some((number(child)?, child.parse().ok()?));
    let mut processes: Vec<(usize, u32)> = children.split_whitespace().filter_map(process).collect();
    processes.sort_unstable();
    processes.into_iter().map(|(_, process)| process).collect()
}
