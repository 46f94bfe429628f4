//! Files of a folder or a pattern that cannot be read.

use std::path::{Path, PathBuf};

use config::OddFiles;

use crate::error::DataError;
use crate::records::Records;

/// The rule for odd files, and the listener that hears of them.
pub(crate) struct OddFilesRule<'a> {
    pub(crate) odd_files: OddFiles,
    /// Called for each that is left out.
    pub(crate) skipped: &'a dyn Fn(&DataError),
}

impl OddFilesRule<'_> {
    /// None is left out.
    pub(crate) const REFUSE: OddFilesRule<'static> = OddFilesRule { odd_files: OddFiles::Refuse, skipped: &|_| {} };

    /// `files` without those that are left out, each of which is reported. To find them, all files are read once more:
    /// a file may be odd at its end.
    ///
    /// # Errors
    /// All errors, where no file is left.
    pub(crate) fn readable(
        &self,
        files: Vec<PathBuf>,
        open: impl Fn(&Path) -> Result<Records, DataError>,
    ) -> Result<Vec<PathBuf>, DataError> {
        if self.odd_files == OddFiles::Refuse || files.len() < 2 {
            return Ok(files);
        }
        let (mut readable, mut odd) = (vec![], vec![]);
        for file in files {
            let read = || -> Result<(), DataError> {
                let mut records = open(&file)?;
                while records.next_record()?.is_some() {}
                Ok(())
            };
            match read() {
                Ok(()) => readable.push(file),
                Err(error) => odd.push(error),
            }
        }
        if readable.is_empty() {
            DataError::all(odd)?;
            return Ok(readable);
        }
        odd.iter().for_each(self.skipped);
        Ok(readable)
    }
}
