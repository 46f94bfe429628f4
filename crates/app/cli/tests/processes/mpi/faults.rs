//! Faults of runs over MPI: named in time, with an exit code that is not zero, and no process is left.

use std::io::Read;
use std::process::{Child, Command};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::libraries::{Library, descendants, ended, is_pleach, of_each_library, said};
use crate::harness::several::{EXPERTS_OF_TWO, Folder, with_keys};

/// A run that lasts until somebody ends it.
const ENDLESS: &[&str] =
    &["train.steps=1000000", "run.save_every=0", "model.hidden=64", "model.context=64", "run.transport=mpi"];

/// A run in four processes, after its second step, and what its processes and its launcher print from then on.
pub fn started(library: &Library, keys: &[&str]) -> (Child, JoinHandle<String>) {
    let arguments = with_keys(&["train"], &[ENDLESS, keys].concat());
    let program = [&[env!("CARGO_BIN_EXE_pleach")], &arguments[..]].concat();
    let mut child = library.command(4, &program).spawn().expect("mpiexec");
    let mut stdout = child.stdout.take().expect("output");
    let (mut seen, mut chunk) = (String::new(), [0; 4096]);
    while !has_second_step(&seen) {
        let read = stdout.read(&mut chunk).expect("output");
        if read == 0 {
            panic!("{}: the run ended early: {seen}{}", library.name, said(&ended(child)));
        }
        seen.push_str(&String::from_utf8_lossy(&chunk[..read]));
    }
    let rest = std::thread::spawn(move || {
        let mut rest = vec![];
        stdout.read_to_end(&mut rest).expect("text");
        String::from_utf8_lossy(&rest).into_owned()
    });
    (child, rest)
}

/// Whether a line of a second or later step is in `seen`. Open MPI gives its processes a terminal, where lines of steps
/// have colours and are drawn over each other.
fn has_second_step(seen: &str) -> bool {
    let numbers = seen.match_indices("/1000000").map(|(end, _)| {
        let before = &seen[..end];
        let digits = before.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        before[digits..].parse::<u32>()
    });
    numbers.flatten().any(|step| step >= 2)
}

/// The process of the run of `child` that the launcher numbers `number`.
fn process(child: &Child, number: usize) -> u32 {
    running(child, number).expect("a process of the run")
}

/// The process of the run of `child` that the launcher numbers `number`, while it runs.
fn running(child: &Child, number: usize) -> Option<u32> {
    let has_number = |pid: &u32| {
        let variables = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let mut variables = variables.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        variables.any(|variable| {
            ["PMI_RANK", "OMPI_COMM_WORLD_RANK"].iter().any(|name| variable == format!("{name}={number}"))
        })
    };
    descendants(child.id()).into_iter().find(|pid| is_pleach(*pid) && has_number(pid))
}

fn signal(pid: u32, name: &str) {
    assert!(has_received(pid, name));
}

/// Sends a signal to a process; returns whether it was there.
fn has_received(pid: u32, name: &str) -> bool {
    let sent = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
    sent.expect("kill").success()
}

/// A run in four processes after its second step, what it prints from then on, and its process 1, which is stopped. On
/// a busy machine a run may reach a deadline before the signal: it is started again, up to three times.
pub fn with_stopped_process(library: &Library, keys: &[&str], folder: &Folder) -> (Child, JoinHandle<String>, u32) {
    let mut early = vec![];
    while early.len() < 3 {
        let run = folder.run(&format!("{}-{}", library.name.replace(' ', "-"), early.len()));
        let (child, rest) = started(library, &[keys, &[&run]].concat());
        if let Some(stopped) = running(&child, 1).filter(|pid| has_received(*pid, "STOP")) {
            return (child, rest, stopped);
        }
        early.push(said(&ended(child)) + &rest.join().expect("text"));
    }
    panic!("{}: no run lasts until its signal: {early:#?}", library.name);
}

#[needs::mpi]
#[test]
fn a_killed_process_ends_the_run_and_is_named() {
    one_is_killed(&[]);
}

/// Each rank waits for the others in the all-to-all of each layer.
#[needs::mpi]
#[test]
fn so_does_one_of_ranks_that_divide_experts() {
    one_is_killed(EXPERTS_OF_TWO);
}

fn one_is_killed(keys: &[&str]) {
    let folder = Folder::new("mpi-killed");
    for library in of_each_library() {
        // That of Open MPI ends all others at once, and names the rank. That of MPICH may end before it has passed on
        // what the others print, or print that a process was killed, or nothing: one of three runs is named.
        let names: &[&str] = if library.is_open_mpi() {
            &["process 2 (", "process rank 2 "]
        } else {
            &["process 2 (ranks 2, 3) on host ", "Killed (signal 9)"]
        };
        let mut texts = vec![];
        while !texts.iter().any(|text: &String| names.iter().any(|name| text.contains(name))) {
            assert!(texts.len() < 3, "{}: {texts:#?}", library.name);
            let (child, rest) = started(&library, &[keys, &[&folder.run(&format!("run-{}", texts.len()))]].concat());
            signal(process(&child, 2), "KILL");
            let output = ended(child);
            let text = said(&output) + &rest.join().expect("text");
            assert!(!output.status.success(), "{}: {text}", library.name);
            texts.push(text);
        }
    }
}

#[needs::mpi]
#[test]
fn a_process_that_stops_answering_is_named() {
    let folder = Folder::new("mpi-stopped");
    for library in of_each_library() {
        let (child, rest) = started(&library, &[&folder.run("run"), "run.heartbeat_seconds=8"]);
        let silent = process(&child, 1);
        signal(silent, "STOP");
        // A launcher may wait for a process that is stopped; it ends by itself once it continues.
        let others: Vec<u32> =
            descendants(child.id()).into_iter().filter(|pid| is_pleach(*pid) && *pid != silent).collect();
        let since = Instant::now();
        while others.iter().any(|pid| is_pleach(*pid)) {
            assert!(since.elapsed() < Duration::from_secs(60), "{}: {others:?} do not notice", library.name);
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = Command::new("kill").args(["-CONT", &silent.to_string()]).status();
        let output = ended(child);
        let text = said(&output) + &rest.join().expect("text");
        assert!(!output.status.success(), "{}: {text}", library.name);
        assert!(text.contains("process 1"), "{}: {text}", library.name);
    }
}

#[needs::mpi]
#[test]
fn a_process_that_never_calls_in_is_named() {
    for library in of_each_library() {
        let pleach = env!("CARGO_BIN_EXE_pleach");
        let keys = ["run.transport=mpi", "run.rendezvous_seconds=3"];
        let options = with_keys(&["train"], &keys).join(" ");
        let script = format!(
            "if [ \"${{PMI_RANK:-$OMPI_COMM_WORLD_RANK}}\" = 1 ]; then exec sleep 10; else exec {pleach} {options}; fi"
        );
        let output = ended(library.command(2, &["sh", "-c", &script]).spawn().expect("mpiexec"));
        let text = said(&output);
        assert!(!output.status.success(), "{}: {text}", library.name);
        assert!(text.contains("process 1 of 2 did not arrive"), "{}: {text}", library.name);
    }
}

#[needs::mpi]
#[test]
fn an_initialisation_that_never_ends_does_not_keep_a_process() {
    // Process 1 loses its way to the launcher, so it is a world of its own, and process 0 waits for it in
    // MPI_Init_thread.
    let mpich = of_each_library().into_iter().filter(|library| !library.is_open_mpi());
    for library in mpich {
        let options = with_keys(&["train"], &["run.transport=mpi"]).join(" ");
        let pleach = env!("CARGO_BIN_EXE_pleach");
        let script = format!("if [ $PMI_RANK = 1 ]; then unset PMI_FD PMI_PORT; fi; exec {pleach} {options}");
        let output = ended(library.command(2, &["sh", "-c", &script]).spawn().expect("mpiexec"));
        let text = said(&output);
        assert!(!output.status.success(), "{}: {text}", library.name);
        assert!(text.contains("sees a world of 1 process"), "{}: {text}", library.name);
    }
}
