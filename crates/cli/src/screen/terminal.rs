//! The window in which results are read.

/// Its columns, if the standard output is one.
#[cfg(unix)]
pub fn columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Nobody says.
#[cfg(not(unix))]
pub fn columns() -> Option<usize> {
    None
}
