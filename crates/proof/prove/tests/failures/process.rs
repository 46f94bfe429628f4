//! A rank that panics ends its process, with an exit code that says so.

use std::process::Command;

use mesh::Rank;
use train::Ports;

use crate::failures::faulty_engine::{Fault, faulty};
use crate::failures::rig::{NEVER, Silent, TOKENS, eight_ranks, threads};

/// Set in the process that is to fail.
const CHILD: &str = "PLEACH_TEST_PART";

#[test]
fn a_panic_ends_the_process_with_an_error() {
    if std::env::var_os(CHILD).is_some() {
        std::process::exit(run_with_a_panic());
    }
    let name = concat!(module_path!(), "::a_panic_ends_the_process_with_an_error");
    let name = name.split_once("::").map_or(name, |(_, path)| path);
    let this = std::env::current_exe().unwrap();
    let output = Command::new(this).args(["--exact", name, "--nocapture"]).env(CHILD, "1").output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("rank 3 failed in step 1 at ") && told.contains("-->"), "{told}");
}

/// A command's use of a run: the error to the standard error, and an exit code.
fn run_with_a_panic() -> i32 {
    let setup = eight_ranks();
    let engine = faulty(threads(&setup, NEVER), Rank(3), 200, Fault::Panics);
    match train::run(&setup, &engine, Ports::new(&TOKENS, &Silent)) {
        Ok(_) => 0,
        Err(error) => {
            eprintln!("{error}");
            1
        }
    }
}
