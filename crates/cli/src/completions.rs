//! `pleach completions`: what completes commands and options in a shell.

use clap::CommandFactory;

use crate::arguments::{Arguments, CompletionsArguments};
use crate::failure::Failure;

/// Prints the shell's script.
///
/// # Errors
/// None.
pub fn completions(arguments: &CompletionsArguments) -> Result<(), Failure> {
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "pleach", &mut std::io::stdout());
    Ok(())
}
