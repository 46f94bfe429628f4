//! The first few trials of what `docs/reliability.md` shows; the program `reliability` does all of them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::process::Command;

use prove::reliability::{
    Reference, Role, Shown, flipped_bits, full_disks, kills, layouts, locks, pairs, stops, vanished_folders,
    wrong_files,
};

/// Set in children of these tests: the words of their role, one a line.
const ROLE: &str = "PLEACH_TEST_ROLE";

/// The body of a child. Run by itself it has nothing to do.
#[test]
fn child() {
    let Ok(words) = std::env::var(ROLE) else { return };
    let words: Vec<String> = words.lines().map(String::from).collect();
    Role::parse(&words).expect("a role").perform().expect("performed");
}

fn start(role: &Role) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--exact", "child", "--nocapture", "--test-threads", "1"]).env(ROLE, role.words().join("\n"));
    Ok(command)
}

fn held(shown: Shown, trials: usize) {
    assert_eq!(shown.failures, [""; 0], "{} {}", shown.number, shown.demand);
    assert!(shown.trials >= trials, "{}: {} trials", shown.number, shown.trials);
}

#[test]
fn faults_are_survived() {
    let reference = Reference::new().unwrap();
    held(kills(&reference, 6, &start).unwrap(), 6);
    held(flipped_bits(&reference, 40).unwrap(), 40);
    held(wrong_files(&reference).unwrap(), 20);
    held(full_disks(&reference, 4).unwrap(), 4);
    held(vanished_folders(&reference, 2).unwrap(), 2);
    held(stops(&reference, 3).unwrap(), 3);
    held(locks(2, &start).unwrap(), 2);
}

#[test]
fn every_pair_keeps_the_promise_of_its_class() {
    let pairs = pairs();
    assert!(pairs.len() >= 24, "{} pairs", pairs.len());
    held(layouts(&pairs).unwrap(), pairs.len());
}
