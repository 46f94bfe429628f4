//! Runs whose checkpoints are in a store, by way of a proxy that injects faults. `PLEACH_CASES=100` counts 100 uploads
//! and 100 resumptions; `PLEACH_S3` is the folder of an environment of Python with moto, whose server is used as well.

mod moto;
mod of_others;
mod proxy;
mod resumptions;
pub mod server;
mod text;
mod uploads;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::harness::several::{Folder, with_keys};
use crate::harness::{stderr, stdout};

/// The store of a test as commands reach it.
pub struct Store {
    pub port: u16,
}

impl Store {
    /// A command with the credentials and the address of the store.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
        command.args(arguments).env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", self.port));
        command.env("AWS_ACCESS_KEY_ID", "the-key-of-the-test").env("AWS_SECRET_ACCESS_KEY", "the-secret-of-the-test");
        command.stdin(Stdio::null());
        command
    }

    pub fn output(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("pleach")
    }

    #[track_caller]
    pub fn succeeds(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}{}", stdout(&output), stderr(&output));
        said(&output)
    }
}

/// All that a command said, without secrets.
#[track_caller]
pub fn said(output: &Output) -> String {
    let text = stdout(output) + &stderr(output);
    assert!(!text.contains("of-the-test"), "a secret was printed: {text}");
    text
}

/// A run of two ranks whose steps take a moment; its checkpoints have some hundred kilobytes.
const KEYS: &[&str] =
    &["parallelism.dp=1", "parallelism.pp=1", "model.num_layers=2", "run.save_every=1", "run.keep_newest=2"];

/// The arguments of a run of `steps` steps in `folder`, at `address`.
pub fn run_of(folder: &Folder, name: &str, steps: u32, more: &[&str]) -> Vec<String> {
    let (run, steps) = (folder.run(name), format!("train.steps={steps}"));
    let keys: Vec<&str> =
        KEYS.iter().copied().chain([run.as_str(), steps.as_str()]).chain(more.iter().copied()).collect();
    with_keys(&["train"], &keys).into_iter().map(str::to_string).collect()
}

pub fn words(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

/// The bytes of a run that ended, which must have no secret in its files of text.
pub fn weights_of(run: &Path) -> Vec<u8> {
    for name in ["run.toml", "train.log", "metrics.jsonl"] {
        let text = std::fs::read_to_string(run.join(name)).expect("a file of the run");
        assert!(!text.contains("of-the-test"), "{name} has a secret");
    }
    std::fs::read(run.join("weights.safetensors")).expect("weights")
}
