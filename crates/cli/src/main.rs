//! The `pleach` command.

#![forbid(unsafe_code)]

mod against;
mod all_ranks;
mod arguments;
mod check;
mod check_json;
mod checkpoint_path;
mod cluster_arguments;
mod cluster_command;
mod cluster_profile;
mod comparison;
mod completions;
mod cpu_time;
mod data_command;
mod diff;
mod doctor;
mod engine;
mod eval;
mod explain;
mod failure;
mod figures;
mod forward;
mod generate;
mod grace;
mod hugging_face;
mod hugging_face_arguments;
mod inference_arguments;
mod input;
mod inspect;
mod interrupt;
mod machine_memory;
mod measured_trace;
mod memory;
mod memory_need;
mod memory_table;
mod output;
mod output_file;
mod pair;
mod plan_command;
mod plan_json;
mod plan_text;
mod presets;
mod products;
mod progress;
mod prove_command;
mod published_runs;
mod rank_times;
mod rates;
mod resume;
mod run_folder;
mod run_source;
mod sequences;
mod simulate;
mod terminal;
mod text;
mod train;
mod unknown_option;
mod validate;
mod verdict;
mod watchdog;

use std::process::ExitCode;

use arguments::{Arguments, Command};
use clap::Parser;
use failure::Failure;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let command = std::env::args().nth(1).unwrap_or_default();
            let Some(told) = unknown_option::key_meant(&error, &command) else { error.exit() };
            output::tell(&told);
            return Failure::Input(told).exit_code();
        }
    };
    match interrupt::survive_file_limits().and_then(|()| run(&arguments.command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::tell(&format!("{failure}\n"));
            failure.exit_code()
        }
    }
}

fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Train(arguments) => train::train(arguments),
        Command::Check(arguments) => check::check(arguments),
        Command::Prove(arguments) => prove_command::prove(arguments),
        Command::Diff(arguments) => diff::diff(arguments),
        Command::Completions(arguments) => completions::completions(arguments),
        Command::Data(arguments) => data_command::run(arguments),
        Command::Doctor(arguments) => doctor::doctor(arguments),
        Command::Explain(arguments) => explain::explain(arguments),
        Command::Inspect(arguments) => inspect::inspect(arguments),
        Command::Simulate(arguments) => simulate::simulate(arguments),
        Command::Plan(arguments) => plan_command::plan(arguments),
        Command::Validate(arguments) => validate::validate(arguments),
        Command::Cluster(command) => cluster_command::run(command),
        Command::Eval(arguments) => eval::eval(arguments),
        Command::Generate(arguments) => generate::generate(arguments),
        Command::Forward(arguments) => forward::forward(arguments),
        Command::Import(arguments) => hugging_face::import(arguments),
        Command::Export(arguments) => hugging_face::write(arguments),
        Command::Presets(arguments) if arguments.compare => published_runs::compare(),
        Command::Presets(_) => presets::presets(),
    }
}
