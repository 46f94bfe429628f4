//! No crate of `Cargo.lock` has a known fault, as far as the extract knows, and the extract knows all of them.

use xtask::advisories::{Extract, PATH, locked};
use xtask::repository::root;

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn extract() -> Extract {
    Extract::parse(&read(PATH)).expect("the extract is sound")
}

#[test]
fn every_crate_is_covered_and_without_a_fault() {
    let findings = extract().findings(&locked(&read("Cargo.lock")).expect("a lock file"));
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}

fn lock_file(name: &str, version: &str) -> String {
    format!("[[package]]\nname = \"{name}\"\nversion = \"{version}\"\nsource = \"registry\"\n")
}

#[test]
fn a_crate_that_is_new_or_has_a_fault_is_found() {
    let extract = Extract { accepted: Default::default(), ..extract() };
    let findings = |name, version| extract.findings(&locked(&lock_file(name, version)).expect("a lock file"));
    let new = findings("left-pad-of-tomorrow", "1.0.0");
    assert!(new.len() == 1 && new[0].starts_with("left-pad-of-tomorrow is not covered by "), "{new:?}");
    assert_eq!(findings("memmap2", "0.9.12"), [""; 0]);
    assert_eq!(
        findings("memmap2", "0.9.10"),
        ["memmap2 0.9.10 has RUSTSEC-2026-0186 (unsound); use a version that is mended"]
    );
}

#[test]
fn an_accepted_fault_that_nothing_has_is_found() {
    let accepted = [("RUSTSEC-2000-0001".to_string(), "no reason".to_string())].into();
    let findings = Extract { accepted, ..Extract::default() }.findings(&[]);
    assert!(findings.len() == 1 && findings[0].starts_with("RUSTSEC-2000-0001 is accepted"), "{findings:?}");
}

#[test]
fn crates_of_the_workspace_have_no_advisories() {
    assert_eq!(locked("[[package]]\nname = \"model\"\nversion = \"0.1.0\"\n"), Ok(vec![]));
}
