//! The window in which results are read.

use std::io::IsTerminal;

use run::records::step_line::Colour;

/// Its columns: those of the standard output, else as `COLUMNS` says.
pub fn columns() -> Option<usize> {
    let said = || std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    of_output().or_else(said).filter(|columns| *columns > 0)
}

/// Its columns where the standard output is a terminal.
pub fn columns_of_output() -> Option<usize> {
    std::io::stdout().is_terminal().then(columns).flatten()
}

/// Whether a terminal that reads the standard output knows codes that move the cursor and set colours.
pub fn has_codes() -> bool {
    std::io::stdout().is_terminal() && knows_codes()
}

/// The same of a terminal that reads the standard error.
pub fn errors_have_codes() -> bool {
    std::io::stderr().is_terminal() && knows_codes()
}

/// Colours for a terminal that has codes, unless `NO_COLOR` is set and not empty.
pub fn colour() -> Colour {
    if has_codes() && !is_colour_refused() { Colour::On } else { Colour::Off }
}

/// The same for a terminal that reads the standard error.
pub fn colour_of_errors() -> Colour {
    if errors_have_codes() && !is_colour_refused() { Colour::On } else { Colour::Off }
}

fn is_colour_refused() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

fn knows_codes() -> bool {
    std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb")
}

/// Columns of the terminal that reads the standard error, 80 where it does not say.
pub fn columns_of_errors() -> usize {
    of_errors().unwrap_or(80)
}

fn of_output() -> Option<usize> {
    columns_of(&std::io::stdout())
}

fn of_errors() -> Option<usize> {
    columns_of(&std::io::stderr())
}

fn columns_of(stream: &impl std::os::fd::AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}
