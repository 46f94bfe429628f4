//! `pleach launch`: processes that start together and end together.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::harness::several::processes_of;
use crate::harness::{pleach, stderr, stdout};

/// A folder that ends with its test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("pleach-launch-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn file(&self, name: &str, text: &str, mode: u32) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).expect("a file");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("permissions");
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn launched(arguments: &[&str]) -> Output {
    pleach(&[&["launch"], arguments].concat())
}

/// The launchers that the processes of `output` report: process 0 on the standard output, others with their label.
fn launchers(output: &Output) -> Vec<String> {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    let of = |line: &str| -> Option<String> {
        let (label, json) = line.split_at(line.find('{')?);
        let json: serde_json::Value = serde_json::from_str(json).ok()?;
        let launcher = &json["launcher"];
        Some(format!("{label}{} {} of {}", launcher["name"].as_str()?, launcher["process"], launcher["processes"]))
    };
    let mut all: Vec<String> = stdout(output).lines().chain(stderr(output).lines()).filter_map(of).collect();
    all.sort();
    all
}

#[test]
fn processes_know_their_place_and_label_their_lines() {
    let expected = ["[1] pleach launch 1 of 3", "[2] pleach launch 2 of 3", "pleach launch 0 of 3"];
    assert_eq!(launchers(&launched(&["--nproc", "3", "--", "doctor", "--json"])), expected);
}

#[test]
fn processes_of_other_hosts_are_started_by_ssh_without_the_token_on_a_command_line() {
    let folder = Folder::new("ssh");
    let hosts = folder.file("hosts", "a.example slots=2\nb.example\n", 0o644);
    let log = folder.0.join("log").display().to_string();
    // As ssh: a shell on the other end runs the last argument.
    let ssh = folder.file("ssh", &format!("#!/bin/sh\necho \"$@\" >> {log}\nexec sh -c \"$2\"\n"), 0o755);
    let output = launched(&["--hosts", &hosts, "--ssh", &ssh, "--", "doctor", "--json"]);
    let expected = ["[1 a.example] pleach launch 1 of 3", "[2 b.example] pleach launch 2 of 3", "pleach launch 0 of 3"];
    assert_eq!(launchers(&output), expected);
    let log = fs::read_to_string(log).expect("a log");
    let mut lines: Vec<&str> = log.lines().collect();
    lines.sort_unstable();
    let remote = format!("exec {} launch-agent", env!("CARGO_BIN_EXE_pleach"));
    assert_eq!(lines, [format!("a.example {remote}"), format!("b.example {remote}")]);
}

#[test]
fn a_failure_on_another_host_has_its_exit_code() {
    let folder = Folder::new("code");
    let hosts = folder.file("hosts", "a.example\nb.example\n", 0o644);
    let ssh = folder.file("ssh", "#!/bin/sh\n[ $1 = b.example ] && exit 7\nexec sh -c \"$2\"\n", 0o755);
    let tiny = tiny(&folder.0.join("run"));
    let train: Vec<&str> = tiny.iter().map(String::as_str).collect();
    let output = launched(&[&["--hosts", &hosts, "--ssh", &ssh, "--"], train.as_slice()].concat());
    assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
    let expected = "host b.example failed with exit code 7, and all others were ended\n";
    assert!(stderr(&output).ends_with(expected), "{}", stderr(&output));
}

#[test]
fn exit_codes_of_ssh_itself_name_the_host_and_the_remedy() {
    let folder = Folder::new("ssh-codes");
    let hosts = folder.file("hosts", "a.example\nb.example\n", 0o644);
    let remedies = [
        (
            127,
            "that host has no such command as this pleach; install it there under the same path, or use --program PATH",
        ),
        (
            255,
            "the connection failed; make `ssh -o BatchMode=yes HOST true` work with its name and without a password, or use \
             --ssh COMMAND",
        ),
    ];
    for (code, remedy) in remedies {
        let script = format!("#!/bin/sh\n[ $1 = b.example ] && exit {code}\nexec sh -c \"$2\"\n");
        let ssh = folder.file("ssh", &script, 0o755);
        let output = launched(&["--hosts", &hosts, "--ssh", &ssh, "--", "presets"]);
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        let expected = format!(
            "host b.example: the program of --ssh ended with exit code {code}: {remedy}; all others were ended\n"
        );
        assert!(stderr(&output).ends_with(&expected), "{}", stderr(&output));
    }
}

#[test]
fn a_dry_run_prints_commands_and_variables() {
    let folder = Folder::new("dry");
    let hosts = folder.file("hosts", "node0 slots=2\nme@node1:1\n", 0o644);
    let output = launched(&[
        "--hosts",
        &hosts,
        "--program",
        "/opt/pleach",
        "--rendezvous",
        "node0:29400",
        "--dry-run",
        "--",
        "train",
        "--set",
        "parallelism.dp=3",
        "--set",
        "train.global_batch=24",
    ]);
    let start = "PLEACH_PROCESSES=3";
    let end = "PLEACH_RENDEZVOUS=node0:29400 pleach train --set parallelism.dp=3 --set train.global_batch=24";
    assert_eq!(
        stdout(&output),
        format!(
            "ssh -o BatchMode=yes node0 'exec /opt/pleach launch-agent'\n  \
             PLEACH_PROCESS=0 {start} PLEACH_LOCAL_PROCESS=0 PLEACH_HOST=node0 {end}\n  \
             PLEACH_PROCESS=1 {start} PLEACH_LOCAL_PROCESS=1 PLEACH_HOST=node0 {end}\n\
             ssh -o BatchMode=yes me@node1 'exec /opt/pleach launch-agent'\n  \
             PLEACH_PROCESS=2 {start} PLEACH_LOCAL_PROCESS=0 PLEACH_HOST=me@node1 {end}\n"
        ),
        "{}",
        stderr(&output)
    );
}

#[test]
fn input_that_cannot_be_used_starts_nothing() {
    let folder = Folder::new("refused");
    let refused = |arguments: &[&str]| {
        let output = launched(arguments);
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""), "{}", stderr(&output));
        stderr(&output)
    };
    assert_eq!(
        refused(&["--nproc", "3", "--", "train"]),
        "--nproc or --hosts: 8 ranks must be divided equally among processes; got 3; start 1, 2, 4 or 8 processes, or change \
         the degrees of [parallelism]\n"
    );
    assert_eq!(
        refused(&["--nproc", "2", "--", "train", "--set", "train.steps=0"]),
        "--set train.steps=0: train.steps = 0 must be positive; use at least 1\n"
    );
    assert!(refused(&["--nproc", "2", "--", "trian"]).contains("unrecognized subcommand 'trian'"));
    let empty = folder.file("hosts", "# none\n", 0o644);
    assert_eq!(
        refused(&["--hosts", &empty, "--", "train"]),
        format!("--hosts {empty}: it names no host; use a line per host, HOST or HOST slots=N\n")
    );
    let local = folder.file("local", "localhost\nnode1\n", 0o644);
    assert!(refused(&["--hosts", &local, "--", "train"]).starts_with("--hosts: other hosts do not reach localhost"));
    let within = Command::new(env!("CARGO_BIN_EXE_pleach"))
        .args(["launch", "--nproc", "2", "--", "doctor"])
        .envs([("PMI_RANK", "1"), ("PMI_SIZE", "4"), ("MPI_LOCALNRANKS", "4")])
        .output()
        .expect("the command starts");
    assert_eq!(
        stderr(&within),
        "pleach launch is itself one of several processes (MPICH: process 1 of 4); start it once, or leave it out and start \
         the command itself with MPICH\n"
    );
}

#[test]
fn the_help_page_is_80_columns_wide() {
    let output = Command::new(env!("CARGO_BIN_EXE_pleach"))
        .args(["launch", "--help"])
        .env("COLUMNS", "80")
        .output()
        .expect("the command starts");
    let text = stdout(&output);
    assert!(text.contains("Examples:\n  pleach launch --nproc 4 -- train RUN.toml\n"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

/// Arguments of a run of one rank that takes long and leaves little. Its reaction to lost hosts needs `--hosts`.
fn tiny(folder: &Path) -> Vec<String> {
    let set = |key: &str, value: &str| ["--set".to_string(), format!("{key}={value}")];
    let keys = [
        ("run.folder", folder.display().to_string()),
        ("model.hidden", "32".into()),
        ("model.num_layers", "2".into()),
        ("train.sequence_length", "16".into()),
        ("train.steps", "1000000".into()),
        ("run.save_every", "20".into()),
        ("run.on_loss", "wait".into()),
    ];
    std::iter::once("train".to_string()).chain(keys.iter().flat_map(|(key, value)| set(key, value))).collect()
}

fn started(options: &[&str], folder: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pleach"));
    command.arg("launch").args(options).arg("--").args(tiny(folder));
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts")
}

pub fn kill(signal: &str, process: &str) {
    assert!(Command::new("kill").args([signal, process]).status().expect("kill").success());
}

/// The lines of the standard output of `child` that follow the first step.
fn after_first_step(child: &mut Child) -> impl Iterator<Item = String> + Send + use<> {
    let output = BufReader::new(child.stdout.take().expect("output"));
    let mut lines = output.lines().map(|line| line.expect("text"));
    assert!(lines.any(|line| line.starts_with("step       1/1000000  loss ")), "a first step");
    lines
}

#[test]
fn a_signal_reaches_the_processes_and_is_the_exit_code() {
    let folder = Folder::new("signal");
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let run = folder.0.join(code.to_string());
        let mut child = started(&[], &run);
        let output = after_first_step(&mut child);
        // As GNU `timeout` does: a signal to the process, and one to its group.
        kill(signal, &child.id().to_string());
        kill(signal, &child.id().to_string());
        output.for_each(drop);
        let mut said = String::new();
        child.stderr.take().expect("messages").read_to_string(&mut said).expect("text");
        assert_eq!(child.wait().expect("an end").code(), Some(code), "{said}");
        assert!(run.join("weights.safetensors").is_file(), "{said}");
        let warning =
            "warning: run.on_loss = \"wait\" has no effect without --hosts; to continue after the loss of a host, ";
        assert!(said.starts_with(warning), "{said}");
        assert_eq!(said.matches("warning: ").count(), 1, "the launcher alone warns: {said}");
    }
}

#[test]
fn processes_end_with_a_launcher_that_was_killed() {
    let folder = Folder::new("orphans");
    let mut child = started(&[], &folder.0.join("run"));
    let output = after_first_step(&mut child);
    kill("-KILL", &child.id().to_string());
    child.wait().expect("an end");
    // The output is that of process 0, and ends with it.
    output.for_each(drop);
}

#[test]
fn a_stopped_process_ends_with_a_launcher_that_was_killed() {
    let folder = Folder::new("stopped");
    let mut child = started(&["--nproc", "2"], &folder.0.join("run"));
    let output = after_first_step(&mut child);
    let process = processes_of(child.id())[0];
    // One after the other at once: Linux itself continues a process that has been stopped for longer.
    let script = format!("kill -STOP {process}; kill -KILL {}", child.id());
    assert!(Command::new("sh").args(["-c", &script]).status().expect("a shell").success());
    child.wait().expect("an end");
    // The output is that of process 0, and ends with it.
    output.for_each(drop);
}

#[test]
fn a_killed_process_is_restarted_from_its_checkpoint() {
    let folder = Folder::new("restart");
    let run = folder.0.join("run");
    let mut child = started(&["--restarts", "1"], &run);
    let mut output = after_first_step(&mut child);
    let (sender, reported) = std::sync::mpsc::channel();
    let drained = std::thread::spawn(move || output.try_for_each(|line| sender.send(line)));
    let mut messages = BufReader::new(child.stderr.take().expect("messages")).lines().map(|line| line.expect("text"));
    let mut until = |start: &str| messages.find(|line| line.starts_with(start)).expect(start);
    let until_reported = |start: &str| reported.iter().find(|line| line.starts_with(start)).expect(start);
    until_reported("saved after step ");
    kill("-KILL", &processes_of(child.id())[0].to_string());
    let expected = format!(
        "process 0 (host localhost) was ended by signal 9, and all others were ended; restarting: pleach train --resume {}; \
         0 restarts left",
        run.display()
    );
    assert_eq!(until("process 0 "), expected);
    until_reported("resuming after step ");
    // The first checkpoint of the resumed run shows that it trains.
    until_reported("saved after step ");
    kill("-TERM", &child.id().to_string());
    until("process 0 (host localhost) was stopped by signal 15");
    drained.join().expect("no panic").expect("a reader");
    assert_eq!(child.wait().expect("an end").code(), Some(143));
}
