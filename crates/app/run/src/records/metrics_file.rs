//! The file `metrics.jsonl` of a run, as the run writes it.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use crate::failure::Failure;
use crate::records::unwritten::unwritten;

/// Takes one record after the other.
pub struct MetricsFile {
    path: PathBuf,
    file: BufWriter<File>,
}

impl MetricsFile {
    /// `file`, which is open at its end and is called `path`.
    pub fn new(path: PathBuf, file: File) -> MetricsFile {
        MetricsFile { path, file: BufWriter::new(file) }
    }

    /// Writes a record at once, so that a run that is killed has it.
    ///
    /// # Errors
    /// The system's.
    pub fn write(&mut self, record: &str) -> io::Result<()> {
        writeln!(self.file, "{record}")?;
        self.file.flush()
    }

    /// That a record could not be written.
    pub fn failure(&self, error: &io::Error) -> Failure {
        Failure::Write(unwritten(&self.path, error))
    }
}
