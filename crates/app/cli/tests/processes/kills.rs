//! Kills of single processes of a run over TCP, on one host and on four, each proven by the report of its attempt, and
//! the bits of the run after all of them. `PLEACH_CASES=200` kills 200 times, with at least 20 in each phase.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use blame::{Attempts, CauseKind, RankHistory, Report};
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::several::{Folder, on_threads, with_keys};
use crate::processes::network::namespaces::Network;
use crate::processes::wait::wait;

/// The part of a step in which a rank is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Start,
    Forward,
    Backward,
    Collective,
    Optimizer,
    Save,
}

impl Phase {
    const ALL: [Phase; 6] =
        [Phase::Forward, Phase::Backward, Phase::Collective, Phase::Optimizer, Phase::Save, Phase::Start];

    fn of(instruction: &str) -> Option<Phase> {
        let begins = |starts: &[&str]| starts.iter().any(|start| instruction.starts_with(start));
        match () {
            () if begins(&["open the rank"]) => Some(Phase::Start),
            () if begins(&["load", "forward"]) => Some(Phase::Forward),
            () if begins(&["backward", "recompute"]) => Some(Phase::Backward),
            () if begins(&["send", "receive", "gather", "reduce", "sum", "gradient norm"]) => Some(Phase::Collective),
            () if begins(&["optimizer", "free"]) => Some(Phase::Optimizer),
            () if begins(&["begin to save", "save"]) => Some(Phase::Save),
            () => None,
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

const PROCESSES: usize = 8;

/// The number of kills, `few` unless more are asked for.
fn kills(few: usize) -> usize {
    needs::cases!(few)
}

/// A launch with these options.
fn launched(options: &[&str], words: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
    command.arg("launch").args(options).args(["--restarts", "100000", "--"]).args(words);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("pleach")
}

/// Whether `launcher` has started `process`, itself or through others.
fn has_started(launcher: u32, process: u32) -> bool {
    let parent = |process: u32| -> Option<u32> {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
    };
    std::iter::successors(Some(process), |process| parent(*process)).any(|ancestor| ancestor == launcher)
}

fn newest_checkpoint(run: &Path) -> u32 {
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.ok()?.file_name().to_str()?.strip_prefix("step-")?.parse().ok()
    };
    let folder = std::fs::read_dir(run.join("checkpoints"));
    folder.map_or(0, |entries| entries.filter_map(name).max().unwrap_or(0))
}

/// The file of the ring of the rank of `process` in the attempt that is open.
fn ring(run: &Path, attempt: u32, process: usize) -> Option<PathBuf> {
    let folder = run.join(format!("failures/attempt-{attempt:04}"));
    let mut files = std::fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    files.find(|path| RankHistory::read(path).is_ok_and(|ring| ring.header.process == process && ring.last().is_some()))
}

/// Whether a checkpoint is being written.
fn is_saving(run: &Path) -> bool {
    let is_partial = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|entry| entry.file_name().to_string_lossy().ends_with(".partial"))
    };
    std::fs::read_dir(run.join("checkpoints")).is_ok_and(|mut entries| entries.any(is_partial))
}

/// Whether every thread of a process has stopped; a signal needs a moment to reach it.
fn is_stopped(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process lives");
    let state =
        |thread: PathBuf| std::fs::read_to_string(thread.join("stat")).ok()?.rsplit_once(") ")?.1.chars().next();
    threads.filter_map(|thread| state(thread.ok()?.path())).all(|state| state == 'T')
}

/// One kill: when it was sent, in which phase, and the report that proves it.
struct Kill {
    sent_ns: u64,
    phase: Phase,
    report: Report,
}

/// Kills `victim` of the attempt when its rank is in `wanted`, or in any other phase where that one does not come soon.
/// The process is stopped while its ring is read, so that the phase is that of the kill.
fn kill_in(wanted: Phase, run: &Path, attempt: u32, victim: usize, launcher: u32) -> Kill {
    let path = wait("the ring of the victim", || ring(run, attempt, victim));
    let read = || RankHistory::read(&path).expect("a ring");
    let pid = read().header.pid;
    assert!(has_started(launcher, pid), "the ring is that of a living process");
    let process = Pid::from_raw(i32::try_from(pid).expect("a process")).expect("a process");
    let signal = |signal| kill_process(process, signal).expect("the process lives");
    let since = Instant::now();
    let patience = if wanted == Phase::Start { Duration::from_millis(50) } else { Duration::from_secs(3) };
    let mut pauses = 0;
    let (phase, instruction) = loop {
        signal(Signal::STOP);
        wait("the stop", || is_stopped(pid).then_some(()));
        let last = read().last().cloned().expect("an instruction");
        let in_ring = Phase::of(&last.instruction).expect("a known instruction");
        let now = if wanted == Phase::Save && is_saving(run) { Phase::Save } else { in_ring };
        if now == wanted || since.elapsed() > patience {
            break (now, last.instruction);
        }
        signal(Signal::CONT);
        pauses += 1;
        std::thread::sleep(Duration::from_micros(drawn(pauses, 400) as u64));
    };
    let sent_ns = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_nanos() as u64;
    signal(Signal::KILL);
    let attempts = Attempts::of_run(run);
    let report = wait("the report of the kill", || attempts.report(attempt).ok());
    assert_eq!(report.instruction, instruction, "the report has the instruction in which the process was killed");
    Kill { sent_ns, phase, report }
}

/// The price of kills.
#[derive(Default)]
struct Price {
    /// Seconds from each kill to the failure as it was written down.
    noticed: Vec<f64>,
    /// Seconds from each kill to the next attempt.
    down: Vec<f64>,
    sent_ns: Option<u64>,
    /// Steps that were done again.
    lost_steps: u32,
}

impl Price {
    fn add(&mut self, sent_ns: u64, report: &Report) {
        let seconds = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e9;
        self.noticed.push(seconds(sent_ns, report.failed_ns));
        self.down.extend(self.sent_ns.replace(sent_ns).map(|before| seconds(before, report.started_ns)));
        let done = report.step.saturating_sub(1);
        self.lost_steps += done.saturating_sub(report.newest_checkpoint.unwrap_or(0));
    }

    /// In words, of a run that took `wall`, with steps of `step` seconds.
    fn line(mut self, wall: Duration, step: f64) -> String {
        let mut at = |which: fn(&mut Price) -> &mut Vec<f64>, share: f64| {
            let all = which(&mut self);
            all.sort_by(f64::total_cmp);
            all.get((all.len().saturating_sub(1) as f64 * share) as usize).copied().unwrap_or(0.0)
        };
        let [noticed, late] = [0.5, 0.99].map(|share| at(|price| &mut price.noticed, share));
        let [down, long] = [0.5, 0.99].map(|share| at(|price| &mut price.down, share));
        let seconds = |of: &[f64]| of.iter().sum::<f64>();
        let [until_noticed, until_next] = [seconds(&self.noticed), seconds(&self.down)];
        let again = f64::from(self.lost_steps) * step;
        format!(
            "noticed within p50 {noticed:.3} s, p99 {late:.3} s; the next attempt after p50 {down:.3} s, p99 {long:.3} s; lost: \
             {until_noticed:.1} s until noticed, {:.1} s from there to the next attempts, {again:.1} s for {} steps of {step:.4} s \
             that were done again; goodput {:.3} of {:.1} s",
            (until_next - until_noticed).max(0.0),
            self.lost_steps,
            1.0 - (until_next + again) / wall.as_secs_f64(),
            wall.as_secs_f64()
        )
    }
}

/// The median time of the steps of a run.
fn step_seconds(run: &Path) -> f64 {
    let text = std::fs::read_to_string(run.join("metrics.jsonl")).expect("metrics");
    let record = |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("JSON");
    let mut all: Vec<f64> = text.lines().filter_map(|line| record(line)["seconds"].as_f64()).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// A number below `end`, from the number of the kill.
fn drawn(number: usize, end: usize) -> usize {
    (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) as usize % end
}

/// Kills processes of a run that is launched with these options, and compares it with an undisturbed one.
fn kill_again_and_again(folder: &Folder, kills: usize, options: &[&str]) {
    let steps = format!("train.steps={}", 60 + 60 * kills);
    let (own, run) = (folder.run("run"), folder.0.join("run"));
    let keys = ["run.save_every=3", "run.transport=tcp", &steps, &own];
    let train = with_keys(&["train", "--quiet"], &keys);
    let resume_at = folder.path("run");
    let mut child = launched(options, &train);
    let mut phases: BTreeMap<Phase, usize> = Phase::ALL.map(|phase| (phase, 0)).into();
    let began = Instant::now();
    let mut price = Price::default();
    let mut last_attempt = 0;
    for number in 0..kills {
        let phase = *Phase::ALL.iter().min_by_key(|phase| phases[phase]).expect("phases");
        let attempt = wait("an attempt", || {
            let open = Attempts::of_run(&run).open().ok()?;
            open.last().map(|attempt| attempt.number()).filter(|number| *number > last_attempt)
        });
        last_attempt = attempt;
        // A start that adds no checkpoint is the last one, so every start but one that is killed at once makes one.
        let before = newest_checkpoint(&run);
        if phase != Phase::Start {
            wait("a checkpoint", || (newest_checkpoint(&run) > before).then_some(()));
        }
        let victim = drawn(number, PROCESSES);
        let Kill { sent_ns, phase, report } = kill_in(phase, &run, attempt, victim, child.id());
        assert_eq!(
            (report.process, report.cause.kind),
            (Some(victim), CauseKind::Signal),
            "kill {number}: {}",
            report.line()
        );
        assert_eq!(report.cause.signal, Some(9), "kill {number}: {}", report.line());
        assert!(!report.instruction.is_empty(), "kill {number}: {}", report.line());
        price.add(sent_ns, &report);
        *phases.entry(phase).or_default() += 1;
        if newest_checkpoint(&run) == before {
            // Killed before it could make progress: the launcher ends, and somebody starts the run again.
            assert_eq!(child.wait().expect("an end").code(), Some(137), "kill {number}: {}", report.line());
            child = match newest_checkpoint(&run) {
                0 => launched(options, &train),
                _ => launched(options, &["train", "--quiet", "--resume", &resume_at]),
            };
        }
    }
    assert_eq!(child.wait().expect("an end").code(), Some(0), "the run ends well in the end");
    let counted: Vec<String> = phases.iter().map(|(phase, count)| format!("{phase} {count}")).collect();
    println!("{kills} kills: {}; {}", counted.join(", "), price.line(began.elapsed(), step_seconds(&run)));
    let undisturbed = folder.run("undisturbed");
    on_threads(&["run.save_every=3", &steps, &undisturbed]);
    assert_eq!(folder.losses("run"), folder.losses("undisturbed"));
    assert!(folder.weights("run") == folder.weights("undisturbed"), "weights");
    if kills >= 200 {
        assert!(phases.values().all(|count| *count >= 20), "{phases:?}");
    }
}

#[test]
fn a_run_whose_processes_are_killed_again_and_again_has_the_bits_of_an_undisturbed_one() {
    kill_again_and_again(&Folder::new("kills"), kills(4), &["--nproc", "8"]);
}

/// Two processes on each host, which are network namespaces.
#[needs::namespaces]
#[test]
fn so_has_a_run_on_four_hosts() {
    let network = Network::of(4);
    let folder = Folder::new("kills-on-hosts");
    let (hosts, ssh) = (folder.path("hosts"), folder.path("ssh"));
    let names: String = (0..4).map(|host| format!("{} slots=2\n", network.address(host))).collect();
    std::fs::write(&hosts, names).expect("a file");
    std::fs::write(&ssh, format!("#!/bin/sh\n{}\n", network.shell())).expect("a file");
    std::fs::set_permissions(&ssh, Permissions::from_mode(0o755)).expect("permissions");
    kill_again_and_again(&folder, kills(2), &["--hosts", &hosts, "--ssh", &ssh]);
}
