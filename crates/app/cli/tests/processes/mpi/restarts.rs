//! `pleach launch --restarts N -- mpiexec ...`: the whole job again, from its newest checkpoint.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use blame::{Attempts, RankHistory};

use super::libraries::{Library, descendants, ended, is_pleach, of_each_library, said};
use crate::harness::several::{Folder, on_threads, with_keys};
use crate::harness::{pleach, stderr};
use crate::processes::wait::wait;

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

/// Kills in each run.
fn kills() -> u32 {
    needs::cases!(1)
}

fn newest_checkpoint(run: &Path) -> Option<u32> {
    let name = |entry: std::fs::DirEntry| entry.file_name().to_str()?.strip_prefix("step-")?.parse().ok();
    std::fs::read_dir(run.join("checkpoints")).ok()?.flatten().filter_map(name).max()
}

/// The rings of the attempt after `last` that is open: of processes that train.
fn open_attempt(run: &Path, last: u32) -> Option<(u32, Vec<RankHistory>)> {
    let number = Attempts::of_run(run).open().ok()?.last()?.number();
    let files = std::fs::read_dir(run.join(format!("failures/attempt-{number:04}"))).ok()?;
    let rings: Vec<RankHistory> = files.flatten().filter_map(|file| RankHistory::read(&file.path()).ok()).collect();
    (number > last && rings.iter().any(|ring| ring.last().is_some())).then_some((number, rings))
}

/// Each kill hits a process of the open attempt that has added a checkpoint.
#[needs::mpi]
#[test]
fn a_killed_rank_restarts_the_job_with_the_same_bits() {
    let folder = Folder::new("mpi-restarts");
    let (kills, steps) = (kills(), format!("train.steps={}", 300 + 60 * (kills() - 1)));
    on_threads(&[RUN, &[&steps, &folder.run("threads")]].concat());
    for library in of_each_library() {
        let name = library.name.replace(' ', "-");
        let run = folder.run(&name);
        let at = folder.0.join(&name);
        let keys = [RUN, &[&steps, "run.transport=mpi", &run]].concat();
        let mut child = launched(&library, &(kills + 2).to_string(), &keys).spawn().expect("pleach");
        let messages = child.stderr.take().expect("messages");
        let text = std::thread::spawn(move || {
            BufReader::new(messages).lines().map_while(Result::ok).map(|line| line + "\n").collect::<String>()
        });
        let mut last = 0;
        for number in 0..kills {
            let (attempt, _) = wait("an attempt", || open_attempt(&at, last));
            last = attempt;
            let before = newest_checkpoint(&at);
            wait("a checkpoint", || newest_checkpoint(&at).filter(|newest| Some(*newest) > before));
            // Then a step at random.
            std::thread::sleep(Duration::from_millis(drawn(if kills == 1 { 300 } else { 50 }).into()));
            let (attempt, rings) = open_attempt(&at, last - 1).expect("the attempt is open");
            assert_eq!(attempt, last, "{}: kill {number} hits the attempt that trains", library.name);
            let living = descendants(child.id());
            let pids: Vec<u32> = rings.iter().map(|ring| ring.header.pid).filter(|pid| living.contains(pid)).collect();
            let victim = pids.get(drawn(4) as usize % pids.len().max(1)).expect("a process that trains");
            assert!(is_pleach(*victim), "{}: {victim}", library.name);
            assert!(Command::new("kill").args(["-KILL", &victim.to_string()]).status().expect("kill").success());
        }
        let output = ended(child);
        let text = text.join().expect("text");
        assert_eq!(output.status.code(), Some(0), "{}: {text}", library.name);
        assert!(text.contains("its last output: ") && text.contains("; restarting: "), "{}: {text}", library.name);
        assert_eq!(text.matches("; restarting: ").count(), kills as usize, "{}: {text}", library.name);
        assert!(
            text.contains("pleach train --resume ") && text.contains("; 2 restarts left"),
            "{}: {text}",
            library.name
        );
        assert_eq!(folder.losses(&name), folder.losses("threads"), "{}", library.name);
        assert!(folder.weights(&name) == folder.weights("threads"), "weights of {}", library.name);
        println!("{}: {kills} kills, the same losses and weights", library.name);
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
        "cannot\nmpiexec failed with exit code 7; its last output: cannot; there is no checkpoint, as at its start, so there is \
         no restart: find the cause, or use a smaller run.save_every\n"
    );
    // Of other programs the checkpoints are not known; the number of restarts ends it.
    let output = pleach(&["launch", "--restarts", "2", "--", &failing]);
    assert_eq!(output.status.code(), Some(7));
    let text = stderr(&output);
    assert_eq!(text.matches("; restarting: ").count(), 2, "{text}");
    assert!(text.ends_with("mpiexec failed with exit code 7; its last output: cannot\n"), "{text}");
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
    assert!(stderr(&output).contains("mpiexec was ended by signal 9; its last output: nothing"), "{}", said(&output));
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
