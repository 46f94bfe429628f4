//! `pleach launch --restarts N -- mpiexec ...`: the whole job again, from its newest checkpoint.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::libraries::{Library, descendants, ended, is_pleach, of_each_library, said};
use crate::harness::several::{Folder, on_threads, with_keys};
use crate::harness::{pleach, stderr};

const RUN: &[&str] = &["train.steps=300", "run.save_every=5"];

/// `pleach launch --restarts` of the library's mpiexec with four processes of the run with these keys.
fn launched(library: &Library, restarts: &str, keys: &[&str]) -> Command {
    let program = [&[env!("CARGO_BIN_EXE_pleach")], &with_keys(&["train", "--quiet"], keys)[..]].concat();
    let of_library = library.command(4, &program);
    let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
    command.args(["launch", "--restarts", restarts, "--"]).arg(of_library.get_program()).args(of_library.get_args());
    command.envs(of_library.get_envs().filter_map(|(name, value)| value.map(|value| (name, value))));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A number that differs from run to run.
fn drawn(below: u32) -> u32 {
    let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time").subsec_nanos();
    nanos / 1000 % below
}

#[test]
fn a_killed_rank_restarts_the_job_with_the_same_bits() {
    let folder = Folder::new("mpi-restarts");
    on_threads(&[RUN, &[&folder.run("threads")]].concat());
    for library in of_each_library() {
        let name = library.name.replace(' ', "-");
        let run = folder.run(&name);
        let keys = [RUN, &["run.transport=mpi", &run]].concat();
        let mut child = launched(&library, "3", &keys).spawn().expect("pleach");
        // At least one checkpoint, then a step at random.
        let since = Instant::now();
        while !folder.0.join(&name).join("checkpoints/latest").exists() {
            assert!(since.elapsed() < Duration::from_secs(120), "{}: no checkpoint has come", library.name);
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_millis(drawn(300).into()));
        let ranks: Vec<u32> = descendants(child.id()).into_iter().filter(|pid| is_pleach(*pid)).collect();
        let victim = ranks.get(drawn(4) as usize).or(ranks.first()).expect("a process of the run");
        assert!(Command::new("kill").args(["-KILL", &victim.to_string()]).status().expect("kill").success());
        let messages = child.stderr.take().expect("messages");
        let text = std::thread::spawn(move || {
            BufReader::new(messages).lines().map_while(Result::ok).map(|line| line + "\n").collect::<String>()
        });
        let output = ended(child);
        let text = text.join().expect("text");
        assert_eq!(output.status.code(), Some(0), "{}: {text}", library.name);
        assert!(text.contains("it said last: ") && text.contains("; starting again: "), "{}: {text}", library.name);
        assert!(
            text.contains("pleach train --resume ") && text.contains("; 2 restarts left"),
            "{}: {text}",
            library.name
        );
        assert_eq!(folder.losses(&name), folder.losses("threads"), "{}", library.name);
        assert!(folder.weights(&name) == folder.weights("threads"), "weights of {}", library.name);
    }
}

#[test]
fn a_start_that_adds_no_checkpoint_is_the_last() {
    let folder = Folder::new("mpi-no-progress");
    // A program that fails in the place of mpiexec.
    let failing = folder.path("mpiexec");
    std::fs::write(&failing, "#!/bin/sh\necho cannot >&2\nexit 7\n").expect("a file");
    assert!(Command::new("chmod").args(["755", &failing]).status().expect("chmod").success());
    let run = folder.run("run");
    let train = with_keys(&["train"], &[&run]);
    let words = [&["launch", "--restarts", "5", "--", &failing, "pleach"], &train[..]].concat();
    let output = pleach(&words);
    assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
    assert_eq!(
        stderr(&output),
        "cannot\nmpiexec failed with exit code 7; it said last: cannot; there is no checkpoint, as at its start, so nothing is \
         started again: find the cause, or use a smaller run.save_every\n"
    );
    // Of other programs the checkpoints are not known; the number of restarts ends it.
    let output = pleach(&["launch", "--restarts", "2", "--", &failing]);
    assert_eq!(output.status.code(), Some(7));
    let text = stderr(&output);
    assert_eq!(text.matches("; starting again: ").count(), 2, "{text}");
    assert!(text.ends_with("mpiexec failed with exit code 7; it said last: cannot\n"), "{text}");
}

#[test]
fn signals_reach_the_other_launcher_and_its_exit_code_is_kept() {
    let folder = Folder::new("mpi-signals");
    let script = folder.path("mpiexec");
    let text = "#!/bin/sh\ntrap 'echo saved >&2; exit 138' USR1\necho ready >&2\nwhile :; do sleep 0.05; done\n";
    std::fs::write(&script, text).expect("a file");
    assert!(Command::new("chmod").args(["755", &script]).status().expect("chmod").success());
    let mut child = Command::new(env!("CARGO_BIN_EXE_pleach"))
        .args(["launch", "--restarts", "5", "--", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("pleach");
    let mut lines = BufReader::new(child.stderr.take().expect("messages")).lines().map_while(Result::ok);
    assert_eq!(lines.next().as_deref(), Some("ready"));
    assert!(Command::new("kill").args(["-USR1", &child.id().to_string()]).status().expect("kill").success());
    // The shell may also say that its `sleep` was ended.
    let lines: Vec<String> = lines.filter(|line| !line.starts_with("User defined")).collect();
    assert_eq!(lines, ["saved", "mpiexec was stopped by signal 10"]);
    assert_eq!(child.wait().expect("an end").code(), Some(138));
}

/// A launcher that is killed leaves its processes; they end before the job starts again, or the command ends.
#[test]
fn processes_that_outlive_their_launcher_are_ended() {
    let folder = Folder::new("mpi-leftovers");
    let script = folder.path("mpiexec");
    std::fs::write(&script, "#!/bin/sh\nsetsid sleep 600 &\nsetsid sleep 600 &\nsleep 0.3\nkill -KILL $$\n")
        .expect("a file");
    assert!(Command::new("chmod").args(["755", &script]).status().expect("chmod").success());
    let output = pleach(&["launch", "--", &script]);
    assert_eq!(output.status.code(), Some(137), "{}", said(&output));
    assert!(stderr(&output).contains("2 processes of "), "{}", said(&output));
    assert!(stderr(&output).contains("mpiexec was ended by signal 9; it said last: nothing"), "{}", said(&output));
}

#[test]
fn options_about_processes_belong_to_the_launcher_that_starts_them() {
    let output = pleach(&["launch", "--nproc", "4", "--", "sh", "-c", "true"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        stderr(&output),
        "--nproc is for processes that pleach starts, and sh starts them itself; give it to sh, or write a command of pleach \
         after --\n"
    );
}
