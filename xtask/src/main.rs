//! `cargo run -p xtask -- COMMAND`.

use std::process::ExitCode;

use xtask::{
    corpus,
    repository::{self, Repository},
    tidy,
};

const USAGE: &str = "usage: cargo run -p xtask -- COMMAND

commands:
  tidy          check sizes, dependency edges, names and words of the whole repository
  corpus STATE  make the embedded corpus anew from the repository as it is; STATE names it, e.g. by a date";

fn main() -> ExitCode {
    let command = std::env::args().nth(1).unwrap_or_default();
    let outcome = match command.as_str() {
        "tidy" => run_tidy(),
        "corpus" => std::env::args().nth(2).map_or(Err(USAGE.to_string()), |state| run_corpus(&state)),
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
    let lines: Vec<String> = findings.iter().map(tidy::Finding::to_string).collect();
    Err(lines.join("\n"))
}

fn run_corpus(state: &str) -> Result<String, String> {
    let text = corpus::make(&Repository::open()?, state);
    let path = repository::root().join(corpus::PATH);
    std::fs::write(&path, &text).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(format!("{}: {} bytes", corpus::PATH, text.len()))
}
