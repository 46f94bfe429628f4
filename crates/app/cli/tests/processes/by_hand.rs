//! Processes that are started with the variables of torchrun and of Kubernetes, without either: the bits of threads.

use std::process::{Child, Command, Output, Stdio};

use crate::harness::several::{Folder, on_threads, with_keys};
use crate::harness::{free_port, stderr};

const TOKEN: &str = "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a";
/// As torchrun itself has set them for process 5 of 8.
const RECORDED: &str = include_str!("../../../../network/launcher/src/tests/recorded/torchrun.env");

/// `train` in eight processes, of which each has the variables that `of` gives it.
fn trained(run: &str, of: impl Fn(usize) -> Vec<(String, String)>) -> Vec<Output> {
    let start = |process: usize| -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
        command.args(with_keys(&["train"], &[run])).envs(of(process)).env("PLEACH_TOKEN", TOKEN);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a process")
    };
    let children: Vec<Child> = (0..8).map(start).collect();
    children.into_iter().map(|child| child.wait_with_output().expect("an end")).collect()
}

fn assert_same_as_threads(folder: &Folder, name: &str, of: impl Fn(usize) -> Vec<(String, String)>) {
    on_threads(&[&folder.run("threads")]);
    for (process, output) in trained(&folder.run(name), of).iter().enumerate() {
        assert_eq!(output.status.code(), Some(0), "process {process}: {}", stderr(output));
        assert!(process == 0 || output.stdout.is_empty(), "process {process} is silent");
    }
    assert_eq!(folder.losses(name), folder.losses("threads"));
    assert!(folder.weights(name) == folder.weights("threads"));
}

#[test]
fn the_variables_that_torchrun_has_set_start_a_run() {
    let folder = Folder::new("torchrun");
    // The agent listens at the port before this one.
    let port = free_port();
    assert_same_as_threads(&folder, "run", |process| {
        let recorded = RECORDED.lines().filter_map(|line| line.split_once('='));
        let value = |name: &str, recorded: &str| match name {
            "RANK" | "ROLE_RANK" => process.to_string(),
            "LOCAL_RANK" => (process % 4).to_string(),
            "GROUP_RANK" => (process / 4).to_string(),
            "MASTER_ADDR" => "127.0.0.1".into(),
            "MASTER_PORT" => (port - 1).to_string(),
            _ => recorded.into(),
        };
        let variables = recorded.filter(|(name, _)| !name.starts_with('#'));
        variables.map(|(name, recorded)| (name.into(), value(name, recorded))).collect()
    });
}

#[test]
fn the_variables_of_an_indexed_job_start_a_run() {
    let folder = Folder::new("kubernetes");
    let address = format!("localhost:{}", free_port());
    assert_same_as_threads(&folder, "run", |process| {
        let variables = [
            ("JOB_COMPLETION_INDEX", process.to_string()),
            ("PLEACH_PROCESSES", "8".into()),
            ("PLEACH_RENDEZVOUS", address.clone()),
            // Two pods on each node: shared memory within a node, TCP between nodes.
            ("PLEACH_HOST", format!("node{}", process / 2)),
        ];
        variables.map(|(name, value)| (name.to_string(), value)).into()
    });
}
