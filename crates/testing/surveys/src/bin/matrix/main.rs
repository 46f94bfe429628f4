//! `cargo run --release -p surveys --bin matrix -- [--results FILE] [--write FILE] [--sample N [--seed SEED]]`
//!
//! Runs every cell of the support matrix and prints the page. Results are kept in a file, line by line, and cells that
//! it holds are not run again: a run that was stopped resumes where it was. Delete the file after a change of numerics.
//! Ends with a failure if a cell breaks the promise of its class.

#![forbid(unsafe_code)]

mod page;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;

use clap::Parser;
use surveys::matrix::Cell;
use surveys::matrix::proof::{Known, prove_all};
use surveys::page::{ended, write};
use surveys::results::Results;
use surveys::sample::{Tally, draw};
use sync::{into_inner, lock};

/// Runs every cell of the support matrix and prints the page.
#[derive(Parser)]
struct Arguments {
    /// Where results are kept while the cells run
    #[arg(long, value_name = "FILE", default_value = "target/matrix.txt")]
    results: PathBuf,
    /// Where the page goes besides the screen
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Run N cells drawn by the seed, keep and write nothing
    #[arg(long, value_name = "N", value_parser = surveys::sample::size())]
    sample: Option<usize>,
    /// Another seed draws other cells
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u32,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    ended(match arguments.sample {
        Some(count) => run_sample(count, arguments.seed),
        None => run(&arguments),
    })
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let results = Results::open(&arguments.results)?;
    let (product, sharing_sequences) = (Cell::all(), Cell::of_shared_sequences());
    let cells = [&product[..], &sharing_sequences].concat();
    let is_open = |cell: &&Cell| cell.refusals().is_empty() && !results.holds(&cell.to_string());
    let open: Vec<Cell> = cells.iter().filter(is_open).copied().collect();
    eprintln!("{} cells to run, {} known", open.len(), results.len());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    prove_all(&mixed(&open), workers, &Known::default(), &|cell, finding| match finding {
        Ok(row) => {
            let said = if row.faults.is_empty() { "as promised" } else { &row.faults };
            eprintln!("{cell}: {said}");
            results.keep(&cell.to_string(), row);
        }
        Err(error) => eprintln!("{error}"),
    });
    let (text, faults) = page::page((&product, &sharing_sequences), &results.all());
    println!("{text}");
    if let Some(path) = &arguments.write {
        write(path, &text)?;
    }
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
}

/// Runs `count` of the cells and reports their verdicts.
fn run_sample(count: usize, seed: u32) -> Result<(), String> {
    let cells = [Cell::all(), Cell::of_shared_sequences()].concat();
    let legal: Vec<Cell> = cells.into_iter().filter(|cell| cell.refusals().is_empty()).collect();
    let tally = Mutex::new(Tally::default());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    prove_all(&draw(legal, count, seed, 0), workers, &Known::default(), &|cell, finding| {
        eprintln!("{cell}: {}", finding.as_ref().map_or_else(String::as_str, |row| row.faults.as_str()));
        let mut tally = lock(&tally);
        tally.add(&cell.to_string(), finding.as_ref().map_err(String::as_str));
    });
    let tally = into_inner(tally).result(count)?;
    println!("confirmed: {tally}; seed {seed}");
    Ok(())
}

/// The same cells in such an order that the first few already show every form and schedule.
fn mixed(cells: &[Cell]) -> Vec<Cell> {
    const STRIDE: usize = 41;
    (0..STRIDE).flat_map(|start| cells.iter().skip(start).step_by(STRIDE)).copied().collect()
}
