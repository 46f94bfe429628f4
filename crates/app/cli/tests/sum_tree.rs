//! Sums in runs of replicas, in processes: the bits of threads on one host and on several, and what `check` says.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::harness::{free_port, pleach, stderr, stdout};

/// Four replicas whose slices are long enough to go to each host once.
const RUN: &[&str] = &[
    "model.num_layers=2",
    "model.hidden=64",
    "model.num_heads=2",
    "model.context=16",
    "data.tokenizer=bytes",
    "data.held_out=0.001",
    "parallelism.dp=4",
    "parallelism.tp=1",
    "parallelism.pp=1",
    "parallelism.microbatch_size=1",
    "train.global_batch=4",
    "train.steps=3",
    "run.rendezvous_seconds=120",
    "run.heartbeat_seconds=60",
];

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("pleach-sum-tree-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn run(&self, name: &str) -> String {
        format!("run.folder={}", self.0.join(name).display())
    }

    fn weights(&self, name: &str) -> Vec<u8> {
        fs::read(self.0.join(name).join("weights.safetensors")).expect("weights")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn arguments<'a>(keys: &[&'a str]) -> Vec<&'a str> {
    let keys = RUN.iter().copied().chain(keys.iter().copied()).flat_map(|key| ["--set", key]);
    std::iter::once("train").chain(keys).collect()
}

/// The weights of a run on threads.
fn on_threads(folder: &Folder, name: &str, keys: &[&str]) -> Vec<u8> {
    let output = pleach(&arguments(&[keys, &[&folder.run(name)]].concat()));
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    folder.weights(name)
}

/// The weights of a run in a process for each replica, which the variables put on these hosts.
fn on_hosts(folder: &Folder, name: &str, keys: &[&str], hosts: [&str; 4]) -> Vec<u8> {
    let run = folder.run(name);
    let arguments = arguments(&[keys, &[&run]].concat());
    let port = free_port();
    let start = |(process, host): (usize, &&str)| -> Child {
        Command::new(env!("CARGO_BIN_EXE_pleach"))
            .args(&arguments)
            .env("PLEACH_PROCESS", process.to_string())
            .env("PLEACH_PROCESSES", "4")
            .env("PLEACH_HOST", host)
            .env("PLEACH_RENDEZVOUS", format!("127.0.0.1:{port}"))
            .env("PLEACH_TOKEN", "5a".repeat(32))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a process")
    };
    let started: Vec<Child> = hosts.iter().enumerate().map(start).collect();
    for child in started {
        let output = child.wait_with_output().expect("an end");
        assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    }
    folder.weights(name)
}

#[test]
fn processes_on_any_hosts_have_the_bits_of_threads() {
    let folder = Folder::new("bits");
    let rank_order = on_threads(&folder, "rank-order", &[]);
    let runs = on_threads(&folder, "runs", &["parallelism.sum_tree=2"]);
    assert!(runs != rank_order, "the order of sums is seen");
    for (index, hosts) in [["a", "a", "b", "b"], ["a", "a", "a", "b"], ["a", "a", "a", "a"]].into_iter().enumerate() {
        for (keys, expected) in [(&["run.transport=tcp"][..], &rank_order), (&["parallelism.sum_tree=2"], &runs)] {
            let name = format!("{index}-{}", keys.join(""));
            assert!(on_hosts(&folder, &name, keys, hosts) == *expected, "{keys:?} on {hosts:?}");
        }
    }
}

#[test]
fn a_run_may_resume_with_other_runs_of_replicas() {
    let folder = Folder::new("resumed");
    on_threads(&folder, "run", &["parallelism.sum_tree=2", "run.save_every=2"]);
    let path = folder.0.join("run").display().to_string();
    let output = pleach(&["train", "--resume", &path, "--set", "train.steps=4", "--set", "parallelism.sum_tree=4"]);
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    let resumes = fs::read_to_string(folder.0.join("run").join("resumes.jsonl")).expect("resumes");
    assert!(resumes.contains("\"parallelism.sum_tree\":[2,4]"), "{resumes}");
}

#[test]
fn check_names_the_order_and_refuses_runs_that_cut_groups() {
    let file = |keys: &str| {
        let folder = Folder::new(&keys.len().to_string());
        let path = folder.0.join("run.toml");
        fs::write(&path, format!("[data]\ntokenizer = \"bytes\"\n[parallelism]\ndp = 8\ntp = 1\npp = 1\n{keys}\n"))
            .expect("a file");
        (folder, path.display().to_string())
    };
    let ((_one, plain), (_other, runs)) = (file(""), file("sum_tree = 2"));
    let compared = pleach(&["check", &plain, &runs]);
    assert!(stdout(&compared).contains("other order"), "{}", stdout(&compared));
    assert!(stdout(&compared).contains("parallelism.sum_tree"), "{}", stdout(&compared));
    assert!(!stdout(&pleach(&["check", &plain])).contains("added first"));
    assert!(stdout(&pleach(&["check", &runs])).contains("; gradients of 2 neighbouring replicas are added first\n"));
    let explained = stdout(&pleach(&["explain", &runs]));
    assert!(explained.contains("sum gradients once a step, runs of 2 neighbours first"), "{explained}");
    let (_cut, cut) = file("zero = 1\nshard_group = 4\nsum_tree = 6");
    let refused = pleach(&["check", &cut]);
    assert_eq!(refused.status.code(), Some(2));
    let rule = "must be a multiple of parallelism.shard_group = 4 where it is more; use 4 or 8, or at most 4";
    assert!(stderr(&refused).contains(rule), "{}", stderr(&refused));
    let none = pleach(&["check", &plain, "--set", "parallelism.sum_tree=0"]);
    assert!(stderr(&none).contains("parallelism.sum_tree = 0"), "{}", stderr(&none));
}
