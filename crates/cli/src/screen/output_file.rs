//! Files that a command writes when its work is done, and that were found writable before it began.

use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// A file that could be written when it was promised.
#[derive(Debug)]
pub struct OutputFile {
    path: PathBuf,
}

impl OutputFile {
    /// The file that an option names. What is there stays as it is until the file is written, and where nothing is, nothing is left.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn promised(option: &str, path: &Path) -> Result<OutputFile, Failure> {
        let refused = |reason: String| Err(Failure::Input(format!("{option} {} {reason}", path.display())));
        let there = fs::symlink_metadata(path);
        match &there {
            Ok(there) if there.is_dir() => return refused("is a folder; name a file in it".into()),
            // Opening a pipe would wait for its reader, and closing it would be an end to him.
            Ok(there) if !there.is_file() && !there.is_symlink() => return Ok(OutputFile { path: path.into() }),
            Ok(_) | Err(_) => {}
        }
        match OpenOptions::new().append(true).create(true).open(path) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let folder = path.parent().unwrap_or(path).display();
                return refused(format!("cannot be written: there is no folder {folder}; make it first"));
            }
            Err(error) => return refused(format!("cannot be written: {error}")),
        }
        if there.is_err() {
            // Whoever could make it can remove it; if not, an empty file is left.
            let _ = fs::remove_file(path);
        }
        Ok(OutputFile { path: path.into() })
    }

    /// The same of an option that may not have been given.
    ///
    /// # Errors
    /// As [`OutputFile::promised`].
    pub fn promised_if(option: &str, path: Option<&Path>) -> Result<Option<OutputFile>, Failure> {
        path.map(|path| OutputFile::promised(option, path)).transpose()
    }

    /// Makes `text` all that is in it.
    ///
    /// # Errors
    /// A disk that is full, and all that happened to the file since it was promised.
    pub fn write(&self, text: impl Display) -> Result<(), Failure> {
        let write = || {
            let mut file = BufWriter::new(File::create(&self.path)?);
            write!(file, "{text}")?;
            file.flush()
        };
        write().map_err(|error| Failure::Work(format!("{} cannot be written: {error}", self.path.display())))
    }

    /// Its name.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_changes_nothing_and_is_given_only_where_it_can_be_kept() {
        let folder = std::env::temp_dir().join(format!("pleach-promised-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let (new, old, link) = (folder.join("new"), folder.join("old"), folder.join("link"));
        fs::write(&old, "kept").expect("a file");
        let promised = OutputFile::promised("--out", &new).expect("writable");
        OutputFile::promised("--out", &old).expect("writable");
        assert_eq!((new.exists(), fs::read_to_string(&old).expect("a file")), (false, "kept".to_string()));
        promised.write("text").expect("written");
        assert_eq!(fs::read_to_string(&new).expect("a file"), "text");
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(&old, &link).expect("a link");
            OutputFile::promised("--out", &link).expect("writable");
            assert!(link.is_symlink());
        }

        let refused = |path: &Path| OutputFile::promised("--out", path).expect_err("refused").to_string();
        let told = format!("--out {} is a folder; name a file in it", folder.display());
        assert_eq!(refused(&folder), told);
        let inner = folder.join("no/such.txt");
        let told = format!("--out {} cannot be written: there is no folder {}/no", inner.display(), folder.display());
        assert_eq!(refused(&inner), format!("{told}; make it first"));
        assert!(refused(&old.join("file")).contains("cannot be written: "));
        fs::remove_dir_all(&folder).expect("removed");
    }
}
