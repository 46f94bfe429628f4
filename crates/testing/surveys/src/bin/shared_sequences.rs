//! `cargo run --release -p surveys --bin shared_sequences -- [--from K]`
//!
//! Runs every layout whose ranks share sequences against one rank. Ends with a failure at the first that is not as near
//! as it must be; `--from` continues after those that passed.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use surveys::page::ended;
use surveys::shared_sequences::SharedCase;

/// Runs every layout whose ranks share sequences against one rank.
#[derive(Parser)]
struct Arguments {
    /// Skip the first K of them
    #[arg(long, value_name = "K", default_value_t = 0)]
    from: usize,
}

fn main() -> ExitCode {
    ended(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let cases = SharedCase::all();
    for (number, case) in cases.iter().enumerate().skip(arguments.from) {
        let faults = case.faults().map_err(|error| format!("layout {number}: {case}: {error}"))?;
        if !faults.is_empty() {
            return Err(format!("layout {number}: {case}: {}", faults.join("; ")));
        }
        eprintln!("{number}: {case}: within the bounds");
    }
    println!(
        "{} layouts whose ranks share sequences: within the bounds of other sums, planned bytes are used bytes",
        cases.len()
    );
    Ok(())
}
