//! The window in which results are read.

/// Its columns: those of the standard output, else as `COLUMNS` says.
pub fn columns() -> Option<usize> {
    let said = || std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    of_output().or_else(said).filter(|columns| *columns > 0)
}

#[cfg(unix)]
fn of_output() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

#[cfg(not(unix))]
fn of_output() -> Option<usize> {
    None
}
