//! The report of a failure: `pleach blame` after runs that were killed, stopped, or failed by themselves.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::several::{EXPERTS_OF_TWO, Folder, on_threads, processes_of, with_keys};
use crate::harness::{pleach, prints, stderr};

const RUN: &[&str] = &["train.steps=300", "run.save_every=5"];

/// `pleach launch` with a process for each of eight ranks.
fn launched(restarts: &str, keys: &[&str]) -> Child {
    let words =
        [&["launch", "--nproc", "8", "--restarts", restarts, "--"], &with_keys(&["train", "--quiet"], keys)[..]];
    let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
    command.args(words.concat()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().expect("pleach")
}

/// Waits for the first checkpoint of the run, which trains from then on.
fn wait_for_checkpoint(folder: &Folder, run: &str) {
    let since = Instant::now();
    let checkpoints = folder.0.join(run).join("checkpoints/latest");
    while !checkpoints.exists() {
        assert!(since.elapsed() < Duration::from_secs(240), "no checkpoint has come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn signal(name: &str, pid: u32) {
    assert!(Command::new("kill").args([name, &pid.to_string()]).status().expect("kill").success());
}

/// All that the launcher prints, and its exit code.
fn ended(mut child: Child) -> (Option<i32>, String) {
    let messages = BufReader::new(child.stderr.take().expect("messages"));
    let text = messages.lines().map_while(Result::ok).map(|line| line + "\n").collect();
    (child.wait().expect("an end").code(), text)
}

fn report(folder: &Folder, run: &str) -> Value {
    serde_json::from_str(&prints(&["blame", &folder.path(run), "--json"])).expect("JSON")
}

#[test]
fn a_killed_rank_is_named_and_the_run_resumes_with_the_same_bits() {
    one_is_killed(&[]);
}

/// Each rank waits for the others in the all-to-all of each layer.
#[test]
fn so_is_one_of_ranks_that_divide_experts() {
    for transport in ["run.transport=tcp", "run.transport=shared-memory"] {
        one_is_killed(&[EXPERTS_OF_TWO, &[transport]].concat());
    }
}

fn one_is_killed(keys: &[&str]) {
    let folder = Folder::new("blame-kill");
    on_threads(&[RUN, keys, &[&folder.run("threads")]].concat());
    let child = launched("2", &[RUN, keys, &[&folder.run("run")]].concat());
    wait_for_checkpoint(&folder, "run");
    let victim = 5;
    signal("-KILL", processes_of(child.id())[victim]);
    let (code, text) = ended(child);
    assert_eq!(code, Some(0), "{text}");
    let line = text.lines().find(|line| line.starts_with("attempt 1: ")).expect("a line about the attempt");
    assert!(line.contains(" was killed by signal 9 (SIGKILL) in step "), "{line}");
    let report = report(&folder, "run");
    let rank = report["rank"].as_u64().expect("a rank");
    assert_eq!((&report["process"], &report["cause"]["signal"]), (&Value::from(victim), &Value::from(9)), "{text}");
    assert!(line.contains(&format!("attempt 1: rank {rank} was")), "{line}");
    assert!(report["step"].as_u64().expect("a step") >= 5 && !report["instruction"].as_str().expect("text").is_empty());
    let history = report["history"].as_array().expect("ranks");
    assert_eq!(history.len(), 8);
    for rank in history {
        assert_eq!(rank["instructions"].as_array().expect("instructions").len(), 20, "{rank}");
    }
    assert_eq!(folder.losses("run"), folder.losses("threads"));
    assert!(folder.weights("run") == folder.weights("threads"), "weights");
    let shown = prints(&["blame", &folder.path("run")]);
    assert!(shown.contains(&format!("Rank {rank} was killed by signal 9 (SIGKILL).\n")), "{shown}");
    assert_eq!(prints(&["blame", &folder.path("run"), "--list"]).lines().count(), 1);
}

#[test]
fn a_stopped_process_is_named_by_the_others() {
    let folder = Folder::new("blame-stop");
    let run = folder.run("run");
    let keys = [RUN, &["run.heartbeat_seconds=2", "train.steps=100000", &run]].concat();
    let child = launched("0", &keys);
    wait_for_checkpoint(&folder, "run");
    signal("-STOP", processes_of(child.id())[6]);
    let (code, text) = ended(child);
    assert!(code.is_some_and(|code| code != 0), "{code:?} {text}");
    let report = report(&folder, "run");
    assert_eq!((&report["process"], &report["cause"]["kind"]), (&Value::from(6), &Value::from("silent")), "{report}");
    assert!(report["cause"]["text"].as_str().expect("text").contains("it has been silent for 2s"), "{report}");
}

#[test]
fn a_run_that_fails_by_itself_leaves_a_report_and_one_that_ends_well_none() {
    let folder = Folder::new("blame-alone");
    let output = pleach(&with_keys(&["train", "--quiet"], &["model.init_std=1e30", &folder.run("run")]));
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let shown = prints(&["blame", &folder.path("run")]);
    let words: String = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    let first = "The run computed a loss or a gradient that is not a finite number. ";
    assert!(words.contains(first) && words.contains("no weight was changed"), "{shown}");
    let late = pleach(&with_keys(&["train", "--quiet"], &["run.timeout_seconds=0.000001", &folder.run("late")]));
    assert_eq!(late.status.code(), Some(1), "{}", stderr(&late));
    assert_eq!(report(&folder, "late")["cause"]["kind"], Value::from("deadline"));
    let well = pleach(&with_keys(&["train", "--quiet"], &[&folder.run("well")]));
    assert_eq!(well.status.code(), Some(0), "{}", stderr(&well));
    assert!(!folder.0.join("well/failures").exists());
    let none = pleach(&["blame", &folder.path("well")]);
    let path = folder.path("well");
    assert_eq!(
        (none.status.code(), stderr(&none)),
        (Some(2), format!("{path}: no attempt of it has failed; `pleach blame {path} --list` lists the reports\n"))
    );
}

/// Without a launcher nobody sees the signal; the ring still has the instruction, and the next attempt reports the one
/// before.
#[test]
fn a_process_that_was_killed_alone_is_reported_later() {
    let folder = Folder::new("blame-killed-alone");
    let run = folder.run("run");
    let keys = ["train.steps=100000", "run.save_every=2", &run];
    let mut child = Command::new(env!("CARGO_BIN_EXE_pleach"))
        .args(with_keys(&["train", "--quiet"], &keys))
        .spawn()
        .expect("pleach");
    wait_for_checkpoint(&folder, "run");
    let running = pleach(&["blame", &folder.path("run")]);
    assert!(stderr(&running).starts_with("attempt 1 is running\n"), "{}", stderr(&running));
    signal("-KILL", child.id());
    child.wait().expect("an end");
    let shown = prints(&["blame", &folder.path("run")]);
    assert!(shown.contains("Ranks 0, 1, 2, 3, 4, 5, 6 and 7 ended without giving a reason.\n"), "{shown}");
    assert!(shown.contains("\nThe last instructions of rank 0:\n"), "{shown}");
}
