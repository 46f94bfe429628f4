//! The file that lists the hosts of a run.

use std::path::Path;

use files::{InputKind, read_text};
use launcher::{Host, parse_host_list};

use crate::failure::Failure;

/// The hosts of a file. A host without a number has `default_processes`.
///
/// # Errors
/// A file that cannot be read or does not list hosts.
pub fn read_hosts(path: &Path, default_processes: usize) -> Result<Vec<Host>, Failure> {
    let shown = path.display();
    let text = read_text(path, InputKind::Hosts).map_err(|error| Failure::Input(format!("--hosts {shown} {error}")))?;
    parse_host_list(&text, default_processes).map_err(|error| Failure::Input(format!("--hosts {shown}: {error}")))
}
