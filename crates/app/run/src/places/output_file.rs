//! Outputs that an option names: promised before the work begins, written when it is done.

use std::fmt::Display;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use files::{Content, Output, OutputError};

use crate::failure::Failure;
use crate::places::own_places;

/// An output of text that could be written when it was promised; `-`, pipes and devices are written to.
#[derive(Debug)]
pub struct OutputFile {
    output: Output,
}

impl OutputFile {
    /// The output that an option names. An existing file keeps its content until the output is written.
    ///
    /// # Errors
    /// A place that cannot be written, or belongs to a run; a file among `inputs`, which the command reads.
    pub fn promised(option: &str, path: &Path, inputs: &[PathBuf]) -> Result<OutputFile, Failure> {
        own_places::check_free(option, path)?;
        let output = Output::promised(path, Content::Text, inputs).map_err(refusal(option, path))?;
        Ok(OutputFile { output })
    }

    /// The same of an option that may not have been given.
    ///
    /// # Errors
    /// The errors of [`OutputFile::promised`].
    pub fn promised_if(option: &str, path: Option<&Path>, inputs: &[PathBuf]) -> Result<Option<OutputFile>, Failure> {
        path.map(|path| OutputFile::promised(option, path, inputs)).transpose()
    }

    /// Makes `text` all that is in it. A reader who closed the pipe has read enough.
    ///
    /// # Errors
    /// A disk that is full, and all that happened to the file since it was promised.
    pub fn write(&self, text: impl Display) -> Result<(), Failure> {
        match self.output.write(text) {
            Err(OutputError::System(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            written => written.map_err(|error| Failure::Work(format!("{} {error}", self.path().display()))),
        }
    }

    /// Refuses `other`, the output of `option`, where it is the same file as this one of another option.
    ///
    /// # Errors
    /// Two options that name one file, or the standard output.
    pub fn check_apart(&self, option: &str, other: Option<&OutputFile>) -> Result<(), Failure> {
        match other.filter(|other| self.output.is_same(&other.output)) {
            Some(other) => {
                let (one, other) = (self.path().display(), other.path().display());
                Err(Failure::Input(format!("{option} {other} must not be {one}, another output; name another file")))
            }
            None => Ok(()),
        }
    }

    /// Its name.
    pub fn path(&self) -> &Path {
        self.output.path()
    }

    /// The regular file that it is written to, with links followed.
    pub fn file(&self) -> Option<&Path> {
        self.output.file()
    }
}

/// The regular file of an option that names an output of data.
///
/// # Errors
/// The errors of [`OutputFile::promised`]; the standard output, a pipe or a device.
pub fn data_file(option: &str, path: &Path, inputs: &[PathBuf]) -> Result<PathBuf, Failure> {
    own_places::check_free(option, path)?;
    let output = Output::promised(path, Content::Data, inputs).map_err(refusal(option, path))?;
    // An output of data has a file.
    Ok(output.file().unwrap_or(path).to_path_buf())
}

fn refusal<'a>(option: &'a str, path: &'a Path) -> impl Fn(OutputError) -> Failure + 'a {
    move |error| Failure::Input(format!("{option} {} {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_option_and_the_file() {
        let here = std::env::temp_dir();
        let refused = OutputFile::promised("--svg", &here, &[]).expect_err("refused").to_string();
        assert_eq!(refused, format!("--svg {} is a folder; name a file in it", here.display()));
        let refused = data_file("--out", Path::new("/dev/null"), &[]).expect_err("refused").to_string();
        assert_eq!(refused, "--out /dev/null is a device, and data must go into a regular file; name one");
        let failed = OutputFile::promised("--svg", Path::new("/dev/full"), &[]).expect("a device").write("text");
        let expected = "/dev/full cannot be written: No space left on device (os error 28)";
        assert_eq!(failed.expect_err("full").to_string(), expected);
    }
}
