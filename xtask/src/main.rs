//! `cargo run -p xtask -- COMMAND`.

use std::process::ExitCode;

use xtask::{
    corpus,
    repository::{self, Repository},
    tidy,
    words::{self, ratchet::Ratchet},
};

const USAGE: &str = "usage: cargo run -p xtask -- COMMAND

commands:
  tidy          check sizes, dependency edges, names and words of the whole repository
  words         count the replaced phrases in texts that are not edited yet; --write lowers the list of them
  corpus STATE  make the embedded corpus anew from the repository as it is; STATE names it, e.g. by a date";

fn main() -> ExitCode {
    let command = std::env::args().nth(1).unwrap_or_default();
    let outcome = match command.as_str() {
        "tidy" => run_tidy(),
        "words" => run_words(std::env::args().nth(2).as_deref()),
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

/// Prints the counts of all replaced phrases, and with `--write` lowers the list to them.
fn run_words(option: Option<&str>) -> Result<String, String> {
    let repository = Repository::open()?;
    let listed = repository.file(words::ratchet::PATH).and_then(|file| file.text.as_deref()).map(Ratchet::parse);
    let listed = match listed {
        None => Ratchet::default(),
        Some(listed) => listed.map_err(|(line, message)| format!("{}:{line}: {message}", words::ratchet::PATH))?,
    };
    let lowered = listed.lowered(&words::occurrences(&repository))?;
    match option {
        None => {}
        Some("--write") => {
            let path = repository::root().join(words::ratchet::PATH);
            std::fs::write(&path, lowered.text()).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Some(_) => return Err(USAGE.to_string()),
    }
    let (before, now) = (listed.totals(), lowered.totals());
    let lines: Vec<String> = words::table::REPLACED
        .iter()
        .map(|replaced| {
            let count = |totals: &std::collections::BTreeMap<&str, usize>| {
                totals.get(replaced.name().as_str()).copied().unwrap_or(0)
            };
            format!("{:20} {:5} listed {:5} found", replaced.name(), count(&before), count(&now))
        })
        .collect();
    Ok(lines.join("\n"))
}

fn run_corpus(state: &str) -> Result<String, String> {
    let text = corpus::make(&Repository::open()?, state);
    let path = repository::root().join(corpus::PATH);
    std::fs::write(&path, &text).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(format!("{}: {} bytes", corpus::PATH, text.len()))
}
