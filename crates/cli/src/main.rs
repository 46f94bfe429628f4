//! The `pleach` command.

#![forbid(unsafe_code)]

mod arguments;
mod check;
mod explain;
mod failure;
mod figures;
mod input;
mod memory;
mod progress;
mod run_folder;
mod train;
mod watchdog;

use std::process::ExitCode;

use arguments::{Arguments, Command};
use clap::Parser;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match &arguments.command {
        Command::Train(arguments) => train::train(arguments),
        Command::Check(arguments) => check::check(arguments),
        Command::Explain(arguments) => explain::explain(arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            failure.exit_code()
        }
    }
}
