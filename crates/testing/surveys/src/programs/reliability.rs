//! Disturbs a run in every way that it must survive, prints what each showed, and ends with a failure if something did
//! not hold. It starts itself as the processes that are killed. Each trial is kept as it ends; stopped, the same
//! command continues.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use clap::{Args, Subcommand};
use prove::ProofError;
use surveys::page::write;
use surveys::reliability::{
    Kept, Reference, Role, Shown, flipped_bits, full_disks, kept_in, kills, layouts, locks, page, stops,
    vanished_folders, wrong_files,
};

/// Disturb a run in every way that it must survive
#[derive(Args)]
pub struct Arguments {
    /// Where the page goes besides the screen
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Do the first N trials of each kind, write nothing
    #[arg(long, value_name = "N", value_parser = surveys::sample::size(), conflicts_with = "write")]
    sample: Option<usize>,
    /// Where each trial is kept; trials of another build are not used
    #[arg(long, value_name = "FILE", default_value = "target/reliability.txt")]
    results: PathBuf,
    /// Be one of the processes that are disturbed
    #[command(subcommand)]
    mode: Option<Mode>,
}

#[derive(Subcommand)]
enum Mode {
    /// A process that is disturbed
    #[command(hide = true)]
    Child {
        /// Its task
        role: Vec<String>,
    },
}

/// Disturbs it.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    match (&arguments.mode, arguments.sample) {
        (Some(Mode::Child { role }), _) => child(role),
        (None, Some(most)) => run_sample(most, &arguments.results),
        (None, None) => run_all(arguments.write.as_deref(), &arguments.results),
    }
}

fn child(role: &[String]) -> Result<(), String> {
    let role = Role::parse(role).ok_or_else(|| format!("no role: {}", role.join(" ")))?;
    role.perform().map_err(|error| error.to_string())
}

/// This program in another role.
fn start(role: &Role) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["reliability", "child"]).args(role.words());
    Ok(command)
}

fn run_all(file: Option<&Path>, results: &Path) -> Result<(), String> {
    let started = Instant::now();
    let kept = kept_in(results)?;
    let all = trials(usize::MAX, &kept).map_err(|error| error.to_string())?;
    let before = file.map(std::fs::read_to_string).transpose().unwrap_or_default().unwrap_or_default();
    let text = page::page(&all, page::counts_of(&before).unwrap_or_default());
    println!("{text}");
    eprintln!("{:.0} s", started.elapsed().as_secs_f64());
    if let Some(file) = file {
        write(file, &text)?;
    }
    let failures: Vec<String> = all.into_iter().flat_map(|shown| shown.failures).collect();
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// Does the first `most` trials of each kind and reports how many held. Places are drawn by the number of the trial.
fn run_sample(most: usize, results: &Path) -> Result<(), String> {
    let kept = kept_in(results)?;
    let all = trials(most, &kept).map_err(|error| error.to_string())?;
    let failures: Vec<&str> = all.iter().flat_map(|shown| &shown.failures).map(String::as_str).collect();
    if !failures.is_empty() {
        return Err(failures.join("\n"));
    }
    let held: Vec<String> =
        all.iter().map(|shown| format!("{} {} of {}", shown.number, shown.trials, shown.trials)).collect();
    println!("confirmed: held {}", held.join(", "));
    Ok(())
}

/// The first `most` trials of each kind, in the order of their numbers.
fn trials(most: usize, kept: &Kept) -> Result<Vec<Shown>, ProofError> {
    let pairs = surveys::reliability::pairs();
    let first = |count: usize| count.min(most);
    let reference = Reference::new()?;
    let tell = |shown: Shown| {
        eprintln!("{}: {} trials, {} failures {}", shown.number, shown.trials, shown.failures.len(), shown.seen);
        shown
    };
    Ok(vec![
        tell(kills(&reference, first(500), &start, kept)?),
        tell(flipped_bits(&reference, first(1000), kept)?),
        tell(wrong_files(&reference)?),
        tell(full_disks(&reference, first(100), kept)?),
        tell(vanished_folders(&reference, first(50), kept)?),
        tell(stops(&reference, first(50), kept)?),
        tell(layouts(&pairs[..first(pairs.len())], kept)?),
        tell(locks(first(50), &start, kept)?),
    ])
}
