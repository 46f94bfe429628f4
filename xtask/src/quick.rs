//! A check of a change in minutes: its format, the rules of the repository, and lints and quick tests of the crates
//! that it touches. `.ci/run` checks everything.

use std::collections::BTreeSet;
use std::process::Command;

use crate::dependencies::ALLOWED;
use crate::repository::{Repository, root};
use crate::tidy;

/// The branch that a change is compared with.
const BASE: &str = "origin/main";
/// Tests that take more than some seconds of a core, by the beginning of their names.
const SLOW: &[&str] = &[
    "adapters",
    "diverging::",
    "equality::",
    "examples::",
    "every_number::",
    "faster_hardware::",
    "golden::",
    "gpu_runs::",
    "hostile::",
    "hugging_face::",
    "matrix::",
    "mutations",
    "overlap::",
    "processes::",
    "published_layouts::",
    "readmes::",
    "recheck::",
    "reliability::",
    "resume::",
    "scale::",
    "schedules::every_schedule",
    "search::",
    "shared_sequences::",
    "verdicts::",
    "zero_bubble::",
];

/// Crates whose tests are those of another.
const TESTED_BY: &[(&str, &str)] = &[("cluster", "sim"), ("philox", "data")];

/// Checks the files that differ from `origin/main`.
///
/// # Errors
/// A clone without that branch, and the first check that fails.
pub fn check() -> Result<String, String> {
    let base = said("git", &["merge-base", BASE, "HEAD"])
        .map_err(|error| format!("{BASE} must be there; {error}; use `git fetch origin main`"))?;
    let tracked = said("git", &["diff", "--name-only", base.trim()])?;
    let new = said("git", &["ls-files", "--others", "--exclude-standard"])?;
    let changed = crates_of(tracked.lines().chain(new.lines()));
    let linted = with_users(&changed);
    run(&["fmt", "--all", "--check"])?;
    let findings = tidy::check(&Repository::open()?);
    if !findings.is_empty() {
        return Err(findings.iter().map(ToString::to_string).collect::<Vec<String>>().join("\n"));
    }
    if changed.is_empty() {
        return Ok("no crate has changed".into());
    }
    run(&[&["clippy", "--locked", "--all-targets"], &packages(&linted)[..], &["--", "-D", "warnings"]].concat())?;
    let skipped: Vec<&str> = SLOW.iter().flat_map(|name| ["--skip", name]).collect();
    let others = TESTED_BY.iter().filter(|(name, _)| changed.contains(name)).map(|(_, tests)| *tests);
    let tested = changed.iter().copied().chain(others).collect();
    run(&[&["test", "--locked"], &packages(&tested)[..], &["--"], &skipped].concat())?;
    Ok(format!("checked {}; slow tests were skipped: `.ci/run` runs all", names(&changed)))
}

/// The crates of the files at `paths`.
fn crates_of<'a>(paths: impl Iterator<Item = &'a str>) -> BTreeSet<&'static str> {
    let folders: BTreeSet<&str> = paths.filter_map(folder_of_crate).collect();
    ALLOWED.iter().map(|(name, _)| *name).filter(|name| folders.contains(name)).collect()
}

/// The name of the folder of a file's crate: `crates/LAYER/NAME`, or `xtask`.
fn folder_of_crate(path: &str) -> Option<&str> {
    let below = path.strip_prefix("crates/").and_then(|path| path.split_once('/')).map_or(path, |(_, below)| below);
    below.split_once('/').map(|(name, _)| name)
}

/// `crates`, and those that use one of them directly.
fn with_users(crates: &BTreeSet<&'static str>) -> BTreeSet<&'static str> {
    let uses = |used: &[&str]| used.iter().any(|name| crates.contains(name));
    ALLOWED.iter().filter(|(name, used)| crates.contains(name) || uses(used)).map(|(name, _)| *name).collect()
}

fn packages(crates: &BTreeSet<&'static str>) -> Vec<&'static str> {
    crates.iter().flat_map(|name| ["--package", name]).collect()
}

fn names(crates: &BTreeSet<&'static str>) -> String {
    crates.iter().copied().collect::<Vec<&str>>().join(", ")
}

/// Runs cargo, whose output is that of this program.
fn run(arguments: &[&str]) -> Result<(), String> {
    let ended = Command::new("cargo").args(arguments).current_dir(root()).status();
    let ended = ended.map_err(|error| format!("cargo does not start: {error}"))?;
    if ended.success() { Ok(()) } else { Err(format!("cargo {} failed", arguments[0])) }
}

/// The output of a program that succeeds.
fn said(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).current_dir(root()).output();
    let output = output.map_err(|error| format!("{program} does not start: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_string();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_are_those_of_changed_files_and_their_users() {
        let paths = [
            "crates/training/interchange/src/lib.rs",
            "README.md",
            "xtask/src/main.rs",
            "docs/gpu.md",
            "crates/gone/a.rs",
        ];
        let changed = crates_of(paths.into_iter());
        assert_eq!(names(&changed), "interchange, xtask");
        assert_eq!(names(&with_users(&changed)), "cli, interchange, run, xtask");
        assert_eq!(packages(&changed), ["--package", "interchange", "--package", "xtask"]);
    }
}
