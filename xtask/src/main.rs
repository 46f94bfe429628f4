//! `cargo run -p xtask -- COMMAND`.

use std::process::ExitCode;

use xtask::{
    advisories::{self, Extract},
    corpus,
    finding::Finding,
    loops,
    pages::{self, Git, PAGES},
    quick,
    repository::{self, Repository},
    test_counts::Counts,
    tidy,
};

const USAGE: &str = "usage: cargo run -p xtask -- COMMAND

commands:
  quick         check format, rules, and lints and quick tests of the crates that differ from origin/main
  tidy          check sizes, dependency edges, names and words of the whole repository
  loops         list circles of files and loops of folders in every crate
  tests LOG     add up what `cargo test` printed to the file LOG; tools that ALLOW_MISSING lists, separated by commas, may be
                missing
  pages         list the pages of figures: when each was made, and which code has changed since
  pages renew PAGE          make all figures of a page again
  pages confirm [PAGE]      run the sample of a page, or of every stale page
  pages stamp PAGE COMMIT   say that the figures of a page were made at a commit
  advisories DB  renew the extract of known faults of dependencies from DB, a clone of the RustSec advisory database
  corpus STATE  regenerate the embedded corpus from the repository as it is; STATE names it, e.g. by a date";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        ["quick"] => quick::check(),
        ["tidy"] => run_tidy(),
        ["loops"] => run_loops(),
        ["tests", log] => run_tests(log),
        ["pages"] => {
            Repository::open().and_then(|repository| pages::listing(&repository, &Git::new(repository::root())))
        }
        ["pages", "renew", name] => pages::page(name).and_then(pages::renew),
        ["pages", "confirm", name] => pages::page(name).and_then(pages::confirm),
        ["pages", "confirm"] => confirm_stale(),
        ["pages", "stamp", name, commit] => pages::page(name).and_then(|page| pages::stamp_as_of(page, commit)),
        ["advisories", database] => run_advisories(database),
        ["corpus", state] => run_corpus(state),
        _ => Err(USAGE.to_string()),
    };
    match outcome {
        Ok(message) => {
            println!("{message}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn run_tidy() -> Result<String, String> {
    let repository = Repository::open()?;
    let findings = tidy::check(&repository);
    if findings.is_empty() {
        return Ok(format!("{} files are tidy", repository.files.len()));
    }
    let lines: Vec<String> = findings.iter().map(Finding::to_string).collect();
    Err(lines.join("\n"))
}

fn run_loops() -> Result<String, String> {
    let found = loops::loops(&Repository::open()?);
    let lines: Vec<String> =
        found.iter().map(|one| format!("{}: {one}", one.folder)).chain([format!("{} loops", found.len())]).collect();
    Ok(lines.join("\n"))
}

fn run_tests(log: &str) -> Result<String, String> {
    let text = std::fs::read_to_string(log).map_err(|error| format!("{log}: {error}"))?;
    let missing = std::env::var("ALLOW_MISSING").unwrap_or_default();
    Counts::of(&text).report(&missing.split(',').collect::<Vec<_>>())
}

/// Every stale page is tried; what failed is the error.
fn confirm_stale() -> Result<String, String> {
    let repository = Repository::open()?;
    let stale = PAGES.iter().filter(|page| !pages::state(page, &repository).is_current());
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    for page in stale {
        match pages::confirm(page) {
            Ok(message) => done.push(message),
            Err(message) => failed.push(message),
        }
    }
    match (done.is_empty(), failed.is_empty()) {
        (true, true) => Ok("no page is stale".into()),
        (false, true) => Ok(done.join("\n")),
        (_, false) => Err([done, failed].concat().join("\n")),
    }
}

/// Renews the extract; what it accepts stays.
fn run_advisories(database: &str) -> Result<String, String> {
    let path = repository::root().join(advisories::PATH);
    let read =
        |path: &std::path::Path| std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()));
    let accepted = if path.exists() { Extract::parse(&read(&path)?)?.accepted } else { Extract::default().accepted };
    let crates = advisories::locked(&read(&repository::root().join("Cargo.lock"))?)?;
    let text = advisories::extract(std::path::Path::new(database), &crates, &accepted)?;
    std::fs::write(&path, &text).map_err(|error| format!("{}: {error}", path.display()))?;
    let findings = Extract::parse(&text)?.findings(&crates);
    if findings.is_empty() { Ok(format!("{} crates are covered", crates.len())) } else { Err(findings.join("\n")) }
}

fn run_corpus(state: &str) -> Result<String, String> {
    let text = corpus::make(&Repository::open()?, state);
    let path = repository::root().join(corpus::PATH);
    std::fs::write(&path, &text).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(format!("{}: {} bytes", corpus::PATH, text.len()))
}
