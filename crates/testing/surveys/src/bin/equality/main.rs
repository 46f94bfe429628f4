//! `cargo run --release -p surveys --bin equality -- [--results FILE] [--write FILE] [--sample N [--seed SEED]]
//! [--golden FILE]`
//!
//! Runs every case of the promise of equality and prints the table of distances. Results are kept in a file, line by
//! line, and cases that it holds are not run again: a run that was stopped resumes where it was. Delete the file after
//! a change of numerics. Ends with a failure if a case breaks the promise.

#![forbid(unsafe_code)]

mod factors;
mod summary;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;

use clap::Parser;
use config::Products;
use surveys::cases::{Case, Family};
use surveys::page::{ended, write};
use surveys::results::{Results, Row};
use surveys::sample::{Tally, draw};
use surveys::survey;
use surveys::survey::{Finding, Order};
use sync::{into_inner, lock};

/// Runs every case of the promise of equality and prints the table of distances.
#[derive(Parser)]
struct Arguments {
    /// Where results are kept while the cases run
    #[arg(long, value_name = "FILE", default_value = "target/equality.txt")]
    results: PathBuf,
    /// Where the table goes besides the screen
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Run N cases drawn by the seed, keep and write nothing
    #[arg(long, value_name = "N", value_parser = surveys::sample::size())]
    sample: Option<usize>,
    /// Another seed draws other cases
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u32,
    /// Write golden losses to this file and run nothing else
    #[arg(long, value_name = "FILE")]
    golden: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    ended(match (&arguments.golden, arguments.sample) {
        (Some(golden), _) => surveys::golden::losses().and_then(|losses| write(golden, &losses)),
        (None, Some(count)) => run_sample(count, arguments.seed),
        (None, None) => run(&arguments),
    })
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let results = Results::open(&arguments.results)?;
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    // One list after the other: the tables of a run that is stopped are complete or empty.
    for cases in lists() {
        let open = cases.into_iter().filter(|case| !results.holds(&case.to_string()));
        let orders = interleaved(survey::orders(open));
        let num_cases: usize = orders.iter().map(|order| order.cases.len()).sum();
        eprintln!("{num_cases} cases to run, {} known", results.len());
        survey::survey(&orders, workers, &|case, finding| {
            keep(&results, &case.to_string(), finding);
        });
    }
    for products in [Products::Chained, Products::Pairs] {
        for family in Family::all().into_iter().filter(|family| family.microbatch_size == 1) {
            let name = table::microbatch_name(family, products);
            if !results.holds(&name) {
                for (_, finding) in survey::microbatch_sizes(&[family], products) {
                    keep(&results, &name, finding);
                }
            }
        }
    }
    let (text, faults) = table::table(&results.all());
    println!("{text}");
    if let Some(path) = &arguments.write {
        write(path, &text)?;
    }
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
}

/// The legal cases with single sums, with exact sums, and with products in AMX order.
fn lists() -> [Vec<Case>; 3] {
    [Case::all(), Case::all_exact(), Case::all_in_pairs()]
        .map(|cases| cases.into_iter().filter(Case::divides).collect())
}

/// The cases that the page counts.
fn legal_cases() -> Vec<Case> {
    lists().into_iter().flatten().collect()
}

/// Runs `count` of the cases and reports their verdicts.
fn run_sample(count: usize, seed: u32) -> Result<(), String> {
    let orders = survey::orders(draw(legal_cases(), count, seed, 0));
    let tally = Mutex::new(Tally::default());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    survey::survey(&orders, workers, &|case, finding| {
        let row = finding.map(|verdict| {
            let faults = verdict.faults();
            Row::of(verdict, &faults)
        });
        eprintln!("{case}: {}", row.as_ref().map_or_else(String::as_str, |row| row.faults.as_str()));
        let mut tally = lock(&tally);
        tally.add(&case.to_string(), row.as_ref().map_err(String::as_str));
    });
    let tally = into_inner(tally).result(count)?;
    println!("confirmed: {tally}; seed {seed}");
    Ok(())
}

/// Says what was found, and keeps it if the case ran.
fn keep(results: &Results, name: &str, finding: Finding) {
    let faults = finding.as_ref().map_or_else(|error| vec![error.clone()], prove::Verdict::faults);
    match faults.is_empty() {
        true => eprintln!("{name}: as promised"),
        false => eprintln!("{name}: {}", faults.join("; ")),
    }
    if let Ok(verdict) = finding {
        results.keep(name, Row::of(verdict, &faults));
    }
}

/// The same orders so mixed that the first few already show every family and degree.
fn interleaved(orders: Vec<Order>) -> Vec<Order> {
    const STRIDE: usize = 37;
    let mut mixed = Vec::with_capacity(orders.len());
    for start in 0..STRIDE {
        mixed.extend(orders.iter().skip(start).step_by(STRIDE).cloned());
    }
    mixed
}
