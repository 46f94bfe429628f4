//! Runs over MPI have the bits of threads.

use std::collections::BTreeMap;

use super::libraries::{Library, all, said};
use crate::harness::several::{EXPERTS_OF_TWO, Folder, TINY, on_threads, with_keys};

/// Long enough that gradients, parameters and activations go in pieces: messages of more than 16 KiB.
pub const LONG: &[&str] = &["model.hidden=64", "model.context=64", "run.transport=mpi"];

/// 3D with ZeRO-1 and with ZeRO-3, and experts.
const RUNS: &[(&str, &[&str])] = &[
    ("zero-1", &["parallelism.zero=1"]),
    ("zero-3", &["parallelism.zero=3", "parallelism.shard_group=1", "parallelism.overlap=true"]),
    ("experts", EXPERTS_OF_TWO),
];

/// Numbers of processes: all where all cases are wanted, or one, which takes turns.
pub fn numbers(turn: usize) -> Vec<usize> {
    let all = [2, 4, 8];
    if needs::all_cases!() { all.to_vec() } else { vec![all[turn % all.len()]] }
}

/// Whether a library runs this one of `forms` forms: every one, or one, which takes turns.
pub fn runs_form(library: usize, form: usize, forms: usize) -> bool {
    needs::all_cases!() || library % forms == form
}

pub fn trained(library: &Library, number: usize, keys: &[&str]) {
    let output = library.pleach(number, &with_keys(&["train"], &[LONG, keys].concat()));
    assert_eq!(output.status.code(), Some(0), "{} with {number} processes: {}", library.name, said(&output));
    assert!(said(&output).contains(library.version), "{}: {}", library.name, said(&output));
}

#[needs::mpi]
#[test]
fn runs_over_mpi_have_the_bits_of_threads() {
    let folder = Folder::new("mpi-bits");
    let libraries = all();
    for (form, (name, keys)) in RUNS.iter().enumerate() {
        let threads = format!("threads-{name}");
        on_threads(&[&LONG[..2], keys, &[&folder.run(&threads)]].concat());
        for (index, library) in libraries.iter().enumerate() {
            for number in numbers(index + form) {
                let run = format!("{name}-{index}-{number}");
                trained(library, number, &[*keys, &[&folder.run(&run)]].concat());
                let which = format!("{name} of {} in {number} processes", library.name);
                assert_eq!(folder.losses(&run), folder.losses(&threads), "{which}");
                assert!(folder.weights(&run) == folder.weights(&threads), "weights of {which}");
            }
        }
    }
}

#[needs::mpi]
#[test]
fn two_runs_share_one_library() {
    let folder = Folder::new("mpi-pair");
    for library in all().iter().filter(|library| library.given.is_none()) {
        let file = |name: &str, keys: &[&str]| {
            let path = folder.path(name);
            std::fs::write(&path, run_file(&[TINY, LONG, keys].concat())).expect("a run file");
            path
        };
        let (first, second) = (file("a.toml", &["parallelism.zero=1"]), file("b.toml", &["parallelism.zero=3"]));
        let output = library.pleach(2, &["prove", &first, &second, "--steps", "2"]);
        assert_eq!(output.status.code(), Some(0), "{}: {}", library.name, said(&output));
    }
}

#[needs::mpi]
#[test]
fn a_run_on_threads_is_proved_against_the_same_over_mpi() {
    let folder = Folder::new("mpi-proof");
    for library in all() {
        let file = |name: &str, keys: &[&str]| {
            let path = folder.path(name);
            std::fs::write(&path, run_file(&[TINY, &LONG[..2], &["parallelism.zero=3"], keys].concat()))
                .expect("a run file");
            path
        };
        let (threads, mpi) = (file("threads.toml", &["run.engine=threads"]), file("mpi.toml", &["run.transport=mpi"]));
        let output = library.pleach(4, &["prove", &threads, &mpi, "--steps", "2"]);
        assert_eq!(output.status.code(), Some(0), "{}: {}", library.name, said(&output));
        assert!(said(&output).contains("2 steps: same bits"), "{}: {}", library.name, said(&output));
    }
}

/// A run file with these keys; the last of equal ones counts.
pub fn run_file(keys: &[&str]) -> String {
    let keys: BTreeMap<&str, &str> = keys.iter().filter_map(|key| key.split_once('=')).collect();
    let is_text = |value: &str| value.parse::<f64>().is_err() && !["true", "false"].contains(&value);
    let line = |(key, value): (&str, &str)| match is_text(value) {
        true => format!("{key} = {value:?}\n"),
        false => format!("{key} = {value}\n"),
    };
    keys.into_iter().map(line).collect()
}
