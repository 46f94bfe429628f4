//! `pleach completions`: what completes commands and options in a shell.

use clap::CommandFactory;

use crate::arguments::{Arguments, CompletionsArguments};
use crate::failure::Failure;
use crate::screen::output::print;

/// Prints the shell's script.
///
/// # Errors
/// Output that cannot be written.
pub fn completions(arguments: &CompletionsArguments) -> Result<(), Failure> {
    let mut script = vec![];
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "pleach", &mut script);
    print(&String::from_utf8_lossy(&script))
}
