//! `cargo run --release -p prove --bin reliability -- [--write FILE]`
//!
//! Disturbs a run in every way that it must survive, says what each showed, and ends with a failure if something did not hold. It starts
//! itself as the processes that are killed.

#![forbid(unsafe_code)]

mod page;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use clap::{Parser, Subcommand};
use prove::ProofError;
use prove::page::{ended, write};
use prove::reliability::{
    Reference, Role, Shown, flipped_bits, full_disks, kills, layouts, locks, stops, vanished_folders, wrong_files,
};

/// Disturbs a run in every way that it must survive, and says what each showed.
#[derive(Parser)]
struct Arguments {
    /// Where the page goes besides the screen
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Be one of the processes that are disturbed
    #[command(subcommand)]
    mode: Option<Mode>,
}

#[derive(Subcommand)]
enum Mode {
    /// A process that is disturbed
    #[command(hide = true)]
    Child {
        /// What it does
        role: Vec<String>,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    ended(match &arguments.mode {
        Some(Mode::Child { role }) => child(role),
        None => run(arguments.write.as_deref()),
    })
}

fn child(role: &[String]) -> Result<(), String> {
    let role = Role::parse(role).ok_or_else(|| format!("no role: {}", role.join(" ")))?;
    role.perform().map_err(|error| error.to_string())
}

/// This program in another role.
fn start(role: &Role) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("child").args(role.words());
    Ok(command)
}

fn run(file: Option<&Path>) -> Result<(), String> {
    let started = Instant::now();
    let all = trials().map_err(|error| error.to_string())?;
    let text = page::page(&all);
    println!("{text}");
    eprintln!("{:.0} s", started.elapsed().as_secs_f64());
    if let Some(file) = file {
        write(file, &text)?;
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
