//! `cargo run --release -p prove --bin reliability -- [--write FILE]`
//!
//! Disturbs a run in every way that it must survive, says what each showed, and ends with a failure if something did not hold. It starts
//! itself as the processes that are killed.

#![forbid(unsafe_code)]

mod page;

use std::process::{Command, ExitCode};
use std::time::Instant;

use prove::ProofError;
use prove::reliability::{
    Reference, Role, Shown, flipped_bits, full_disks, kills, layouts, locks, stops, vanished_folders, wrong_files,
};

const USAGE: &str = "usage: reliability [--write FILE]

  --write FILE    where the page goes besides the screen";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match words.split_first() {
        Some((first, role)) if first == "child" => child(role),
        _ => run(&words),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn child(role: &[String]) -> Result<(), String> {
    Role::parse(role).ok_or(USAGE)?.perform().map_err(|error| error.to_string())
}

/// This program in another role.
fn start(role: &Role) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("child").args(role.words());
    Ok(command)
}

fn run(words: &[String]) -> Result<(), String> {
    let file = match words {
        [] => None,
        [option, file] if option == "--write" => Some(file),
        _ => return Err(USAGE.into()),
    };
    let started = Instant::now();
    let all = trials().map_err(|error| error.to_string())?;
    let text = page::page(&all);
    println!("{text}");
    eprintln!("{:.0} s", started.elapsed().as_secs_f64());
    if let Some(file) = file {
        std::fs::write(file, &text).map_err(|error| format!("{file}: {error}"))?;
    }
    let failures: Vec<String> = all.into_iter().flat_map(|shown| shown.failures).collect();
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// All trials, in the order of their numbers.
fn trials() -> Result<Vec<Shown>, ProofError> {
    let reference = Reference::new()?;
    let tell = |shown: Shown| {
        eprintln!("{}: {} trials, {} failures {}", shown.number, shown.trials, shown.failures.len(), shown.seen);
        shown
    };
    Ok(vec![
        tell(kills(&reference, 500, &start)?),
        tell(flipped_bits(&reference, 1000)?),
        tell(wrong_files(&reference)?),
        tell(full_disks(&reference, 100)?),
        tell(vanished_folders(&reference, 50)?),
        tell(stops(&reference, 50)?),
        tell(layouts(&prove::reliability::pairs())?),
        tell(locks(50, &start)?),
    ])
}
