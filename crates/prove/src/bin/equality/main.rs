//! `cargo run --release -p prove --bin equality -- [--results FILE] [--write FILE] [--golden FILE]`
//!
//! Runs every case of the promise of equality and prints the table of distances. Results are kept in a file, line by line, and
//! cases that it holds are not run again: a run that was stopped goes on where it was. Delete the file after a change of numerics.
//! Ends with a failure if a case breaks the promise.

#![forbid(unsafe_code)]

mod summary;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use prove::cases::{Case, Family};
use prove::results::{Results, Row};
use prove::survey::{self, Finding, Order};

const USAGE: &str = "usage: equality [--results FILE] [--write FILE] [--golden FILE]

  --results FILE  where results are kept while the cases run (default target/equality.txt)
  --write FILE    where the table goes besides the screen
  --golden FILE   write golden losses to FILE and run nothing else";

/// What the command line says.
struct Arguments {
    results: PathBuf,
    write: Option<PathBuf>,
    golden: Option<PathBuf>,
}

impl Arguments {
    fn parse() -> Result<Arguments, String> {
        let mut arguments = Arguments { results: "target/equality.txt".into(), write: None, golden: None };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let file = words.next().map(PathBuf::from).ok_or(USAGE)?;
            match word.as_str() {
                "--results" => arguments.results = file,
                "--write" => arguments.write = Some(file),
                "--golden" => arguments.golden = Some(file),
                _ => return Err(USAGE.into()),
            }
        }
        Ok(arguments)
    }
}

fn main() -> ExitCode {
    let outcome = Arguments::parse().and_then(|arguments| match &arguments.golden {
        Some(golden) => write(golden, &prove::golden::losses()?),
        None => run(&arguments),
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let results = Results::open(&arguments.results)?;
    let cases = Case::all().into_iter().chain(Case::all_exact());
    let open = cases.filter(|case| case.divides() && !results.holds(&case.to_string()));
    let orders = interleaved(survey::orders(open));
    let num_cases: usize = orders.iter().map(|order| order.cases.len()).sum();
    eprintln!("{num_cases} cases to run, {} known", results.len());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    survey::survey(&orders, workers, &|case, finding| {
        keep(&results, &case.to_string(), finding);
    });
    for family in Family::all().into_iter().filter(|family| family.microbatch_size == 1) {
        let name = table::microbatch_name(family);
        if !results.holds(&name) {
            for (_, finding) in survey::microbatch_sizes(&[family]) {
                keep(&results, &name, finding);
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

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
