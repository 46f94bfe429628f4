//! Screens that are lost: closed pipes, a terminal that hangs up, full disks. The run continues, and says so in its
//! log.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::harness::free_port;
use crate::harness::several::{Folder, with_keys};

/// Steps of a run without a reader, and of one whose reader leaves long before its end.
const STEPS: usize = 12;
const MANY_STEPS: usize = 100;
const TOKEN: &str = "a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5";
const PIPE: &str = "Broken pipe (os error 32)";
const FULL: &str = "No space left on device (os error 28)";

fn pleach(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
    command.args(words).stdin(Stdio::null());
    command
}

/// `train` with `steps` steps into the folder `name`, with words before it and after it.
fn train_steps(steps: usize, (folder, name): (&Folder, &str), before: &[&str], after: &[&str]) -> Command {
    let steps = format!("train.steps={steps}");
    pleach(&with_keys(
        &[before, &["train"], after].concat(),
        &[&folder.run(name), &steps, "run.save_every=0", "data.held_out=0"],
    ))
}

fn train(folder: &Folder, name: &str, before: &[&str], after: &[&str]) -> Command {
    train_steps(STEPS, (folder, name), before, after)
}

/// A pipe that nobody reads.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

fn full() -> Stdio {
    fs::OpenOptions::new().write(true).open("/dev/full").expect("the device").into()
}

fn lost(stream: &str, reason: &str) -> String {
    format!(
        "warning: the standard {stream} cannot be written: {reason}; the run continues without it, and train.log has \
         its lines"
    )
}

/// That the run in `name` did all of its `steps`, and that its log says once of each of `streams` that it was lost.
fn is_whole_after(steps: usize, (folder, name): (&Folder, &str), streams: &[String]) {
    let read = |file: &str| fs::read_to_string(folder.0.join(name).join(file)).expect("a file of the run");
    let (metrics, log, status) = (read("metrics.jsonl"), read("train.log"), read("status.json"));
    let done = metrics.lines().filter(|line| line.contains("\"loss\":")).count();
    assert_eq!(done, steps, "{name}: {metrics}");
    assert!(status.contains("\"finished\""), "{name}: {status}");
    assert!(log.contains(&format!("\nstep {steps}/{steps}  loss ")), "{name}: {log}");
    assert!(folder.0.join(name).join("weights.safetensors").is_file(), "{name}");
    for stream in streams {
        assert_eq!(log.lines().filter(|line| line == stream).count(), 1, "{name}: {stream}: {log}");
    }
    assert_eq!(log.matches("the run continues without it").count(), streams.len(), "{name}: {log}");
}

fn is_whole(folder: &Folder, name: &str, streams: &[String]) {
    is_whole_after(STEPS, (folder, name), streams);
}

#[test]
fn a_run_without_a_reader_does_all_of_its_steps() {
    let folder = Folder::new("screens");
    for (name, output, reason) in [("closed", closed(), PIPE), ("full", full(), FULL)] {
        let ended = train(&folder, name, &[], &[]).stdout(output).stderr(Stdio::piped()).output().expect("a run");
        let errors = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(0), "{name}: {errors}");
        is_whole(&folder, name, &[lost("output", reason)]);
        assert_eq!(errors.lines().filter(|line| **line == lost("output", reason)).count(), 1, "{name}: {errors}");
    }
    // Nobody listens anywhere.
    let both = train(&folder, "both", &[], &[]).stdout(closed()).stderr(closed()).status().expect("a run");
    assert_eq!(both.code(), Some(0));
    is_whole(&folder, "both", &[lost("output", PIPE), lost("error", PIPE)]);
    let json = train(&folder, "json", &[], &["--json"]).stdout(closed()).stderr(Stdio::null()).status().expect("a run");
    assert_eq!(json.code(), Some(0));
    is_whole(&folder, "json", &[lost("output", PIPE)]);
}

#[test]
fn warnings_go_to_the_screen_that_is_left() {
    let folder = Folder::new("warnings");
    // Nobody watches the hosts of this run, so that it begins with a warning.
    let (run, steps) = (folder.run("run"), format!("train.steps={STEPS}"));
    let words = with_keys(&["train"], &[&run, &steps, "run.on_loss=wait", "data.held_out=0"]);
    let ended = pleach(&words).stdout(Stdio::piped()).stderr(closed()).output().expect("a run");
    assert_eq!(ended.status.code(), Some(0));
    is_whole(&folder, "run", &[lost("error", PIPE)]);
    let printed = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(printed.contains(&lost("error", PIPE)) && printed.contains("\nwarning: run.on_loss = "), "{printed}");
}

#[test]
fn a_reader_that_leaves_in_the_middle_ends_no_run_of_a_launcher() {
    let folder = Folder::new("launched");
    let mut child: Child = train_steps(MANY_STEPS, (&folder, "run"), &["launch", "--nproc", "2", "--"], &[])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a launcher");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    while !line.starts_with("step ") {
        line.clear();
        assert!(lines.read_line(&mut line).expect("a line") > 0, "no step was printed");
    }
    drop(lines);
    assert_eq!(child.wait().expect("an end").code(), Some(0));
    is_whole_after(MANY_STEPS, (&folder, "run"), &[lost("output", PIPE)]);
    let mut silent = train(&folder, "silent", &["launch", "--nproc", "2", "--"], &[]);
    assert_eq!(silent.stdout(closed()).stderr(closed()).status().expect("a launcher").code(), Some(0));
    is_whole(&folder, "silent", &[lost("output", PIPE), lost("error", PIPE)]);
}

#[test]
fn other_processes_without_readers_do_all_steps() {
    let folder = Folder::new("others");
    let address = format!("127.0.0.1:{}", free_port());
    let start = |process: usize| {
        let mut command = train(&folder, "run", &[], &[]);
        command.envs([("PLEACH_PROCESS", process.to_string()), ("PLEACH_PROCESSES", "2".into())]);
        command.env("PLEACH_RENDEZVOUS", &address).env("PLEACH_TOKEN", TOKEN);
        match process {
            0 => command.stdout(Stdio::null()).stderr(Stdio::null()),
            _ => command.stdout(closed()).stderr(closed()),
        };
        command.spawn().expect("a process")
    };
    let codes = [0, 1].map(start).map(|mut child| child.wait().expect("an end").code());
    assert_eq!(codes, [Some(0), Some(0)]);
    is_whole(&folder, "run", &[]);
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status().expect("kill");
    assert!(status.success());
}

/// A terminal that hangs up sends SIGHUP, and nobody reads any more. A signal that ends a run still does.
#[test]
fn a_run_outlives_its_terminal_and_ends_by_a_signal() {
    let folder = Folder::new("hangup");
    for (name, before) in [("alone", &[][..]), ("launched", &["launch", "--nproc", "2", "--"][..])] {
        let mut train = train_steps(1_000_000, (&folder, name), before, &[]);
        let mut child = train.stdout(closed()).stderr(closed()).spawn().expect("a run");
        let metrics = folder.0.join(name).join("metrics.jsonl");
        let steps_are = |least: usize| {
            while fs::read_to_string(&metrics).unwrap_or_default().lines().count() < least {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        };
        steps_are(1);
        signal(&child, "-HUP");
        let before = fs::read_to_string(&metrics).expect("metrics").lines().count();
        steps_are(before + 5);
        assert!(child.try_wait().expect("a child").is_none(), "{name}: SIGHUP ended it");
        signal(&child, "-TERM");
        assert_eq!(child.wait().expect("an end").code(), Some(143), "{name}");
        assert!(folder.0.join(name).join("weights.safetensors").is_file());
        let status = fs::read_to_string(folder.0.join(name).join("status.json")).expect("a file");
        assert!(status.contains("\"stopped\""), "{status}");
    }
}
