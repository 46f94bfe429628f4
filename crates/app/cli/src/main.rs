//! The `pleach` command.

#![forbid(unsafe_code)]

mod arguments;
mod blame;
mod check;
mod cluster;
mod compare;
mod completions;
mod convert;
mod doctor;
mod explain;
mod fetch;
mod infer;
mod inspect;
mod launch;
mod panics;
mod plan;
mod presets;
mod rank_hosts;
mod run_report;
mod screen;
mod simulate;
mod speaking;
mod train;
mod work_share;

use std::io::{self, Write};
use std::process::ExitCode;

use arguments::{Arguments, Command};
use clap::Parser;
use config::Trusted;
use run::failure::Failure;
use run::messages::stderr;
use run::places::own_places;
use run::signals::interrupt;

fn main() -> ExitCode {
    // Before threads are started.
    nvidia::driver::ask_for_hardware_queues();
    run::launch::parent::end_with_launcher();
    panics::leave_libraries_to_their_callers();
    let arguments = match Arguments::try_parse_from(arguments::software_value::joined(std::env::args_os())) {
        Ok(arguments) => arguments,
        Err(error) => return answered(&error),
    };
    match interrupt::survive_file_limits().and_then(|()| run(&arguments.command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            speaking::tell(&failure);
            ExitCode::from(failure.exit_code())
        }
    }
}

/// The exit code after help, a version, or the message for arguments that cannot be used.
fn answered(error: &clap::Error) -> ExitCode {
    let command = std::env::args_os().nth(1).unwrap_or_default();
    let command = command.to_string_lossy();
    let meant = arguments::unknown_option::key_meant(error, &command);
    if let Some(remedy) = meant.or_else(|| arguments::unknown_option::place_meant(error, &command)) {
        stderr::tell(&remedy);
        return ExitCode::from(Failure::Input(remedy).exit_code());
    }
    let written = error.print().and_then(|()| io::stdout().flush());
    if error.use_stderr() {
        return ExitCode::from(Failure::INPUT);
    }
    match screen::output::read_or_failed(written) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            stderr::tell(&format!("{failure}\n"));
            ExitCode::from(failure.exit_code())
        }
    }
}

/// Whether a signal may end the command at any time: its outputs get their names when they are whole. The others listen
/// by themselves.
fn leaves_nothing_half_done(command: &Command) -> bool {
    match command {
        Command::Check(_)
        | Command::Explain(_)
        | Command::Simulate(_)
        | Command::Plan(_)
        | Command::Validate(_)
        | Command::Cluster(_)
        | Command::Import(_)
        | Command::Export(_)
        | Command::Presets(_)
        | Command::Blame(_)
        | Command::Report(_)
        | Command::Fetch(_)
        | Command::Data(_) => true,
        Command::Train(_)
        | Command::Launch(_)
        | Command::LaunchAgent
        | Command::LaunchGuard
        | Command::Prove(_)
        | Command::Diff(_)
        | Command::Completions(_)
        | Command::Doctor(_)
        | Command::MpiAnswers(_)
        | Command::Inspect(_)
        | Command::Eval(_)
        | Command::Generate(_)
        | Command::Forward(_) => false,
    }
}

fn run(command: &Command) -> Result<(), Failure> {
    if !work_share::has_part(command)? {
        return Ok(());
    }
    for (option, place) in command.outputs() {
        own_places::check_free(option, &place)?;
    }
    if leaves_nothing_half_done(command) {
        interrupt::ends_at_once()?;
    }
    match command {
        Command::Train(arguments) => train::train(arguments),
        Command::Launch(arguments) => launch::launch(arguments),
        Command::LaunchAgent => run::launch::agent::serve(launch::LANGUAGE),
        Command::LaunchGuard => run::launch::guard::serve(),
        Command::Check(arguments) => check::check(arguments),
        Command::Prove(arguments) => compare::prove::prove(arguments),
        Command::Diff(arguments) => compare::diff::diff(arguments),
        Command::Completions(arguments) => completions::completions(arguments),
        Command::Data(arguments) => convert::data::run(arguments),
        Command::Blame(arguments) => blame::blame(arguments),
        Command::Doctor(arguments) => doctor::doctor(arguments),
        Command::MpiAnswers(arguments) => doctor::mpi_library::print_answers(&arguments.library),
        Command::Explain(arguments) => explain::explain(arguments),
        Command::Fetch(arguments) => fetch::fetch(&Trusted::of_command_line(arguments.address.clone()), &arguments.out),
        Command::Inspect(arguments) => inspect::inspect(arguments),
        Command::Simulate(arguments) => simulate::simulate(arguments),
        Command::Plan(arguments) => plan::plan(arguments),
        Command::Validate(arguments) => cluster::validate::validate(arguments),
        Command::Cluster(command) => cluster::run(command),
        Command::Report(arguments) => run_report::write_or_serve(arguments),
        Command::Eval(arguments) => infer::eval::eval(arguments),
        Command::Generate(arguments) => infer::generate::generate(arguments),
        Command::Forward(arguments) => infer::forward::forward(arguments),
        Command::Import(arguments) => convert::hugging_face::import(arguments),
        Command::Export(arguments) => convert::hugging_face::write(arguments),
        Command::Presets(arguments) if arguments.compare => plan::published_runs::compare(),
        Command::Presets(_) => presets::presets(),
    }
}
