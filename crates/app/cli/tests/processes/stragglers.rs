//! A process of a run that is stopped again and again, as a machine that is slow.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::several::{Folder, processes_of, with_keys};
use crate::processes::wait::wait;

/// Two replicas, whose steps take much longer than [`RUNS`].
const RUN: &[&str] = &[
    "model.hidden=128",
    "model.context=128",
    "parallelism.dp=2",
    "parallelism.tp=1",
    "parallelism.pp=1",
    "parallelism.microbatch_size=2",
    "train.global_batch=8",
    "train.steps=100000",
    "run.save_every=0",
];

/// The slow process runs for this long,
const RUNS: Duration = Duration::from_millis(2);
/// and is then stopped for this long: one pause is as long as a step of its peers on a machine that runs other
/// programs, because a rank is only named where its least step is longer than their median.
const PAUSES: Duration = Duration::from_millis(60);

#[test]
fn a_slow_process_is_named_within_20_steps() {
    let folder = Folder::new("straggler");
    let run = folder.run("run");
    let words = with_keys(&["train", "--quiet"], &[RUN, &[&run]].concat());
    let mut launcher = Command::new(env!("CARGO_BIN_EXE_pleach"));
    launcher.args(["launch", "--nproc", "2", "--"]).args(words);
    let launcher = launcher.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("pleach");
    let text = |file: &str| std::fs::read_to_string(folder.0.join("run").join(file)).unwrap_or_default();
    let steps = || text("metrics.jsonl").lines().count();
    wait("a step", || (steps() > 2).then_some(()));
    let pid = |number: u32| Pid::from_raw(i32::try_from(number).expect("a process")).expect("a process");
    let victim = pid(processes_of(launcher.id())[1]);
    let is_over = AtomicBool::new(false);
    let (before, line) = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                kill_process(victim, Signal::STOP).expect("it lives");
                std::thread::sleep(PAUSES);
                kill_process(victim, Signal::CONT).expect("it lives");
                std::thread::sleep(RUNS);
            }
        });
        let before = steps();
        let slow = || text("train.log").lines().find(|line| line.contains(": rank 1 is slow: ")).map(str::to_string);
        // The thread ends before a panic is passed on.
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| wait("the name of the slow rank", slow)));
        is_over.store(true, Ordering::Relaxed);
        (before, found)
    });
    kill_process(pid(launcher.id()), Signal::TERM).expect("it lives");
    let output = launcher.wait_with_output().expect("an end");
    let line = line.expect("a line");
    assert_eq!(output.status.code(), Some(143), "{}", String::from_utf8_lossy(&output.stderr));
    let step: usize = line.strip_prefix("step ").and_then(|rest| rest.split_once(':')?.0.parse().ok()).expect(&line);
    // A step was under way when its process became slow.
    assert!(step <= before + 1 + 20, "{line}, and it was slow after step {before}");
    assert!(
        line.contains(", and its peers ") && line.contains("; that costs up to ") && line.ends_with(" s a step"),
        "{line}"
    );
}
