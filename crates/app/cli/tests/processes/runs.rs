//! Runs whose ranks are in several processes: the bits of threads, failures with names, signals, and what is refused.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::harness::several::{
    EXPERTS_OF_TWO, Folder, in_processes, launched, on_threads, processes_of, succeeds, with_keys,
};
use crate::harness::{pleach, stderr, stdout};

/// Numbers of processes, and what the run is. The first takes every number over either transport; the others take
/// turns.
const RUNS: &[(&[&str], &[&str])] = &[
    (&["2", "4", "8"], &[]),
    (&["4"], &["parallelism.zero=3", "parallelism.shard_group=1"]),
    (&["8"], &["parallelism.dp=4", "parallelism.tp=1", "parallelism.zero=3", "parallelism.shard_group=2"]),
    (&["2"], &["parallelism.schedule=zb-v", "train.precision=bf16"]),
    (&["8"], &["parallelism.sequence_parallel=true", "parallelism.recompute=full"]),
    (&["4"], &["train.sums=exact", "parallelism.overlap=true"]),
    (&["4"], &["parallelism.tp=1", "parallelism.cp=2", "parallelism.cp_kind=ring", "parallelism.overlap=true"]),
    (&["8"], EXPERTS_OF_TWO),
    (&["4"], EXPERTS_OF_TWO),
    (&["16"], &["parallelism.dp=4", "parallelism.zero=2", "parallelism.reduce=microbatch"]),
];

/// The files of the newest checkpoint that have tensors, by name.
fn tensors(folder: &Folder, run: &str) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(folder.path(&format!("{run}/checkpoints/step-00000004"))).expect("a checkpoint");
    let files = files
        .map(|file| file.expect("a file").path())
        .filter(|path| path.extension().is_some_and(|end| end == "safetensors"));
    files
        .map(|path| (path.file_name().expect("a name").to_string_lossy().into_owned(), fs::read(&path).expect("bytes")))
        .collect()
}

/// The run with `keys` on threads, and in each of `numbers` of processes over each of `transports`, has the same bits.
fn assert_same_as_threads(folder: &Folder, name: &str, keys: &[&str], numbers: &[&str], transports: &[&str]) {
    let threads = format!("threads-{name}");
    on_threads(&[keys, &[&folder.run(&threads)]].concat());
    for (number, transport) in numbers.iter().flat_map(|number| transports.iter().map(move |way| (number, way))) {
        let run = format!("{transport}-{name}-{number}");
        let own = [&folder.run(&run)[..], &format!("run.transport={transport}")];
        let output = in_processes(number, &[keys, &own].concat());
        succeeds(&output);
        assert_eq!(folder.losses(&run), folder.losses(&threads), "{keys:?} {run}");
        assert!(folder.weights(&run) == folder.weights(&threads), "weights of {keys:?} {run}");
        let saved = tensors(folder, &run);
        assert!(!saved.is_empty() && saved == tensors(folder, &threads), "checkpoint of {keys:?} {run}");
        assert!(!stderr(&output).contains("[1]"), "only process 0 speaks: {}", stderr(&output));
    }
}

#[test]
fn processes_have_the_bits_of_threads() {
    let folder = Folder::new("bits");
    let transports = ["shared-memory", "tcp"];
    for (index, (numbers, keys)) in RUNS.iter().enumerate() {
        let (name, is_of_sixteen) = (index.to_string(), numbers.contains(&"16"));
        if !needs::all_cases!() {
            let ways = if index == 0 { &transports[..] } else { &transports[index % 2..=index % 2] };
            assert_same_as_threads(&folder, &name, keys, numbers, ways);
            continue;
        }
        assert_same_as_threads(&folder, &name, keys, &["2", "4", "8"], &transports);
        let replicas = match keys.contains(&"parallelism.tp=1") {
            true => "parallelism.dp=8",
            false => "parallelism.dp=4",
        };
        let of_sixteen =
            if is_of_sixteen { keys.to_vec() } else { [*keys, &[replicas, "train.global_batch=8"]].concat() };
        assert_same_as_threads(&folder, &format!("{name}-sixteen"), &of_sixteen, &["16"], &transports);
    }
}

#[test]
fn a_process_that_finds_damage_sets_the_checkpoint_aside_for_the_next_start() {
    let folder = Folder::new("damage");
    let keys = ["train.steps=6", "run.keep_newest=9"];
    on_threads(&[&keys[..], &[&folder.run("whole")]].concat());
    succeeds(&in_processes("2", &[&keys[..], &[&folder.run("hurt")]].concat()));
    // Ranks 5 and 7, of process 0 and of process 1, read it: each may find the damage first.
    let file = folder.path("hurt/checkpoints/step-00000006/rank-00005.safetensors");
    let mut bytes = fs::read(&file).expect("a file");
    *bytes.last_mut().expect("bytes") ^= 16;
    fs::write(&file, bytes).expect("written");

    let run = folder.path("hurt");
    let resume = || launched("2", &["train", "--resume", &run]);
    let failed = resume();
    assert_eq!(failed.status.code(), Some(1), "{}", stderr(&failed));
    for part in
        ["rank-00005.safetensors: bytes ", "step-00000006 is damaged; renamed to ", "start the same command again"]
    {
        assert!(stderr(&failed).contains(part), "{part}: {}", stderr(&failed));
    }
    let resumed = resume();
    succeeds(&resumed);
    assert!(stdout(&resumed).contains("resuming after step 4"), "{}", stdout(&resumed));
    assert_eq!(folder.losses("hurt"), folder.losses("whole"));
    assert!(folder.weights("hurt") == folder.weights("whole"));
}

#[test]
fn a_trace_has_the_ranks_of_all_processes() {
    let folder = Folder::new("trace");
    let (run, file) = (folder.run("traced"), folder.path("trace.json"));
    let command = ["launch", "--nproc", "4", "--", "train", "--trace", &file];
    succeeds(&pleach(&with_keys(&command, &[&run])));
    let trace: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&file).expect("the trace")).expect("a Chrome trace");
    let events = trace["traceEvents"].as_array().expect("events");
    let spans = |event: &&serde_json::Value| event["ph"] == "X";
    let rows: std::collections::BTreeSet<u64> =
        events.iter().filter(spans).filter_map(|event| event["pid"].as_u64()).collect();
    assert_eq!(rows.len(), 8, "{rows:?}");
}

#[test]
fn checkpoints_move_between_threads_and_processes() {
    let folder = Folder::new("moves");
    on_threads(&[&folder.run("whole")]);
    let resume = |name: &str| [String::from("--resume"), folder.path(name)];
    // Two steps on threads, two in processes, and the other way round.
    let stop = "train.steps=2";
    on_threads(&[&folder.run("threads"), stop]);
    let [option, path] = resume("threads");
    let output = pleach(&["launch", "--nproc", "4", "--", "train", &option, &path, "--set", "train.steps=4"]);
    succeeds(&output);
    succeeds(&in_processes("2", &[&folder.run("processes"), stop]));
    let [option, path] = resume("processes");
    succeeds(&pleach(&["train", &option, &path, "--set", "train.steps=4"]));
    // The learning rate depends on all steps, so both end alike, and their first two steps are those of a run of two.
    assert_eq!(folder.losses("threads"), folder.losses("processes"));
    assert!(folder.weights("threads") == folder.weights("processes"));
}

/// A long run in processes, after its first step.
fn started(keys: &[&str]) -> (Child, BufReader<std::process::ChildStdout>) {
    let arguments = with_keys(&["launch", "--nproc", "4", "--", "train"], &[&["train.steps=1000000"], keys].concat());
    let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
    let mut child = command.args(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a run");
    let mut lines = BufReader::new(child.stdout.take().expect("lines"));
    let mut line = String::new();
    while !line.contains("step 2/") && !line.contains("step       2/") {
        line.clear();
        assert!(lines.read_line(&mut line).expect("a line") > 0, "the run ended early");
    }
    (child, lines)
}

fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().expect("kill");
    assert!(sent.success());
}

/// The exit code of a child, and its standard error.
fn ended(child: Child, mut lines: BufReader<std::process::ChildStdout>) -> (Option<i32>, String) {
    let mut line = String::new();
    while lines.read_line(&mut line).expect("lines") > 0 {
        line.clear();
    }
    let output = child.wait_with_output().expect("an end");
    (output.status.code(), stderr(&output))
}

#[test]
fn a_signal_to_the_launcher_commits_a_checkpoint() {
    let folder = Folder::new("signal");
    let (child, lines) = started(&[&folder.run("run"), "run.save_every=0"]);
    signal(child.id(), "TERM");
    let (code, text) = ended(child, lines);
    assert_eq!(code, Some(143), "{text}");
    assert_eq!(text.matches("ended by SIGTERM after step").count(), 1, "{text}");
    let saved = fs::read_dir(folder.0.join("run/checkpoints")).expect("checkpoints").count();
    assert!(saved >= 2, "a checkpoint and a lock");
}

#[test]
fn a_signal_to_any_process_commits_a_checkpoint_and_ends_all() {
    let folder = Folder::new("any-signal");
    for (process, name, code) in [(0, "INT", 130), (2, "INT", 130), (3, "TERM", 143)] {
        let run = format!("run-{process}");
        let (child, lines) = started(&[&folder.run(&run), "run.save_every=0"]);
        let processes = processes_of(child.id());
        signal(processes[process], name);
        let (ended_with, text) = ended(child, lines);
        assert_eq!(ended_with, Some(code), "process {process}: {text}");
        assert_eq!(text.matches(" after step ").count(), 1, "process {process}: {text}");
        let saved = fs::read_dir(folder.0.join(&run).join("checkpoints")).expect("checkpoints").count();
        assert!(saved >= 2, "a checkpoint and a lock");
        assert!(processes.iter().all(|pid| !PathBuf::from(format!("/proc/{pid}")).exists()), "no process is left");
    }
}

#[test]
fn a_killed_process_ends_the_run_and_is_named() {
    let folder = Folder::new("killed");
    let (child, lines) = started(&[&folder.run("run")]);
    let processes = processes_of(child.id());
    assert_eq!(processes.len(), 4);
    signal(processes[2], "KILL");
    let (code, text) = ended(child, lines);
    assert_eq!(code, Some(137), "{text}");
    assert!(text.contains("process 2"), "{text}");
    assert!(processes.iter().all(|pid| !PathBuf::from(format!("/proc/{pid}")).exists()), "no process is left");
}

#[test]
fn runs_that_do_not_fit_their_processes_are_refused() {
    let output = in_processes("3", &[]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("8 ranks must be divided equally among processes; got 3"), "{}", stderr(&output));
    let output = pleach(&with_keys(&["train"], &["run.engine=processes"]));
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("use `pleach launch --nproc 8 -- train ...`"), "{}", stderr(&output));
}
