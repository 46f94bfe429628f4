//! `run.collectives = "native"`: sums by the library are within the bounds of their class, and exact ones have the bits
//! of threads.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::bits::{LONG, numbers, run_file, runs_form, trained};
use super::faults::with_stopped_process;
use super::libraries::{Library, all, descendants, ended, is_pleach, of_each_library, said};
use crate::harness::several::{Folder, TINY, on_threads, with_keys};

const NATIVE: &str = "run.collectives=native";
/// Groups of four: sums of two terms have the same bits in any order.
const LAYOUTS: &[(&str, &[&str])] = &[
    ("zero-1", &["parallelism.dp=4", "parallelism.tp=1", "parallelism.zero=1"]),
    ("zero-3", &["parallelism.dp=4", "parallelism.pp=1", "parallelism.zero=3", "parallelism.overlap=true"]),
    ("tensor", &["parallelism.dp=1", "parallelism.tp=4", "model.num_heads=4"]),
    (
        "heads",
        &["parallelism.dp=1", "parallelism.tp=1", "parallelism.cp=4", "parallelism.cp_kind=heads", "model.num_heads=4"],
    ),
];

fn written(folder: &Folder, name: &str, keys: &[&str]) -> String {
    let path = folder.path(name);
    std::fs::write(&path, run_file(&[TINY, LONG, &["train.epsilon=1e-5", "train.steps=3"], keys].concat()))
        .expect("a run file");
    path
}

/// The output of `prove` for a run with pleach's own collectives and the same with those of the library.
fn proven(library: &Library, number: usize, folder: &Folder, (name, keys): (&str, &[&str])) -> String {
    let own = written(folder, &format!("{name}-own.toml"), keys);
    let native = written(folder, &format!("{name}-native.toml"), &[keys, &[NATIVE]].concat());
    let output = library.pleach(number, &["prove", &own, &native, "--steps", "3"]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(0), "{name} of {} in {number} processes: {text}", library.name);
    text
}

#[needs::mpi]
#[test]
fn sums_of_a_library_are_within_the_bounds() {
    let folder = Folder::new("mpi-native");
    for (index, library) in all().iter().enumerate() {
        let mut texts = vec![];
        for (form, layout) in LAYOUTS.iter().enumerate() {
            for number in numbers(index + form) {
                texts.push(proven(library, number, &folder, *layout));
            }
        }
        // A group within one process stays in rank order, and a library may take that order, too; not for all of these.
        let is_named = |text: &String| text.contains(": library order; ") && text.contains("the promise holds");
        assert!(texts.iter().any(is_named), "{}: {texts:?}", library.name);
        assert!(texts.iter().all(|text| is_named(text) || text.contains("same bits")), "{}: {texts:?}", library.name);
    }
}

#[needs::mpi]
#[test]
fn exact_sums_of_a_library_have_the_bits_of_threads() {
    let folder = Folder::new("mpi-native-exact");
    let exact = "train.sums=exact";
    for (form, (name, keys)) in LAYOUTS.iter().enumerate() {
        let threads = format!("threads-{name}");
        on_threads(&[&LONG[..2], keys, &[exact, &folder.run(&threads)]].concat());
        // Each of these runs takes ten times as long as one with rounded sums.
        let libraries = all();
        let chosen = libraries.iter().enumerate().filter(|(index, _)| runs_form(*index, form, LAYOUTS.len()));
        for (index, library) in chosen {
            for number in numbers(index + index / LAYOUTS.len()) {
                let run = format!("{name}-{index}-{number}");
                trained(library, number, &[keys, &[exact, NATIVE, &folder.run(&run)][..]].concat());
                let which = format!("{name} of {} in {number} processes", library.name);
                assert_eq!(folder.losses(&run), folder.losses(&threads), "{which}");
                assert!(folder.weights(&run) == folder.weights(&threads), "weights of {which}");
            }
        }
    }
}

/// A member of a group stops: a collective of the library that never ends keeps nobody.
#[needs::mpi]
#[test]
fn a_rank_that_stops_ends_the_run_though_a_library_waits_for_it() {
    let folder = Folder::new("mpi-native-stops");
    let keys = [NATIVE, "run.timeout_seconds=2", "run.heartbeat_seconds=600", "parallelism.dp=4", "parallelism.tp=1"];
    for library in of_each_library() {
        let (child, rest, silent) = with_stopped_process(&library, &keys, &folder);
        let others: Vec<u32> =
            descendants(child.id()).into_iter().filter(|pid| is_pleach(*pid) && *pid != silent).collect();
        let since = Instant::now();
        while others.iter().any(|pid| is_pleach(*pid)) {
            assert!(since.elapsed() < Duration::from_secs(60), "{}: {others:?} do not notice", library.name);
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = Command::new("kill").args(["-CONT", &silent.to_string()]).stderr(Stdio::null()).status();
        let output = ended(child);
        let text = said(&output) + &rest.join().expect("text");
        assert!(!output.status.success(), "{}: {text}", library.name);
        // All waits have one deadline, so the first report may be that of a rank that waits for one that waits itself.
        // Process 0 adds the process that does not answer.
        assert!(text.contains(" waited ") && text.contains(" for rank "), "{}: {text}", library.name);
        assert!(text.contains("  -->  "), "{}: {text}", library.name);
        let stopped = text.matches("process 1 (host ").count();
        assert!(stopped > 0 && text.contains(" has not answered since then: stopped"), "{}: {text}", library.name);
    }
}

#[test]
fn other_transports_have_no_collectives_of_their_own() {
    let output = crate::harness::pleach(&with_keys(&["check"], &[NATIVE, "run.transport=tcp"]));
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        said(&output),
        "--set run.collectives=native: run.collectives = \"native\" needs a library with collectives; run.transport = \
         \"tcp\" has none; write run.transport = \"mpi\", or leave run.collectives out\n"
    );
}
