//! `cargo run --release -p surveys --bin pairs -- [--pairs N] [--seed SEED] [--results FILE] [--write FILE]`
//!
//! Draws pairs of layouts of small random models, runs them and compares their distances with the bounds. Each result
//! is kept in a file, and pairs that it holds are not run again: a run that was stopped continues. Ends with a failure
//! where a distance is beyond its bound, or a bound beyond three times the 99.9 % quantile of its kind.

#![forbid(unsafe_code)]

mod kept;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};

use clap::Parser;
use kept::Kept;
use surveys::page::{ended, write};
use surveys::pairs::{Shares, draw, measure, table};

/// Runs random pairs of layouts and compares their distances with the bounds.
#[derive(Parser)]
struct Arguments {
    /// Pairs that are drawn
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// Another seed draws other pairs
    #[arg(long, value_name = "SEED", default_value_t = 32)]
    seed: u32,
    /// Where results are kept while the pairs run
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// Print the pair of this number and its shares, and nothing else
    #[arg(long, value_name = "NUMBER")]
    show: Option<u32>,
    /// Where the table goes besides the screen
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

fn main() -> ExitCode {
    ended(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let Arguments { pairs, seed, results, show, write: to } = arguments;
    if let Some(number) = show {
        let pair = draw(*seed, *number);
        let shares = measure(&pair)?;
        println!("{pair}");
        shares.iter().for_each(|share| println!("{share}"));
        return Ok(());
    }
    let default = || PathBuf::from(format!("target/pairs-{seed}.txt"));
    let kept = Kept::open(&results.clone().unwrap_or_else(default))?;
    let next = AtomicU32::new(0);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= *pairs {
                        break;
                    }
                    if !kept.holds(number) {
                        kept.keep(number, measure(&draw(*seed, number)));
                    }
                }
            });
        }
    });
    let (shares, failed): (Shares, Vec<String>) = kept.all();
    let text = table(&shares);
    println!("{} pairs of seed {seed}\n\n{text}", shares.pairs());
    if let Some(path) = to {
        write(path, &text)?;
    }
    let findings = [failed, shares.exceeded(), shares.loose()].concat();
    if findings.is_empty() { Ok(()) } else { Err(findings.join("\n")) }
}
