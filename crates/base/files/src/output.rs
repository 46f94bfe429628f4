//! Files that a command writes when its work is done, and that were found writable before it began.

use std::fmt::Display;
use std::fs::{self, FileType, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::identity::{same_file, same_place};
use crate::input::open;
use crate::input_kind::InputKind;
use crate::own_file::Draft;

/// Links that are followed from a name to its file.
const MOST_LINKS: usize = 40;

/// The content of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Text, which also goes to the standard output, into pipes and to devices.
    Text,
    /// Data, which need a regular file: they are written in parts, not in order.
    Data,
}

/// Why an output is refused, or is not written. Printed after the name of the output.
#[derive(Debug, Error)]
pub enum OutputError {
    /// A folder where a file is meant.
    #[error("is a folder; name a file in it")]
    Folder,
    /// A pipe or a device.
    #[error("is {0}, and data must go into a regular file; name one")]
    NoFile(&'static str),
    /// A folder, a pipe or a device with the name of a file that a command writes into a folder.
    #[error("is {0}, and a file of that name is written here; remove it")]
    Taken(&'static str),
    /// The standard output.
    #[error("is the standard output, and data must go into a regular file; name one")]
    Standard,
    /// A folder that is missing.
    #[error("cannot be written: there is no folder {0}; make it first")]
    NoFolder(PathBuf),
    /// A file that the command reads.
    #[error("is {0}, which this command reads; name another file")]
    Input(PathBuf),
    /// The system's reason.
    #[error("cannot be written: {0}")]
    System(#[from] io::Error),
}

/// For callers whose errors hold one of the system's.
impl From<OutputError> for io::Error {
    fn from(error: OutputError) -> io::Error {
        match error {
            OutputError::System(error) => error,
            OutputError::Folder => ErrorKind::IsADirectory.into(),
            OutputError::NoFolder(_) => ErrorKind::NotFound.into(),
            OutputError::NoFile(_) | OutputError::Taken(_) | OutputError::Standard | OutputError::Input(_) => {
                io::Error::new(ErrorKind::InvalidInput, format!("it {error}"))
            }
        }
    }
}

/// An output that could be written when it was promised.
#[derive(Debug)]
pub struct Output {
    /// As the user named it.
    path: PathBuf,
    target: Target,
}

#[derive(Debug, PartialEq, Eq)]
enum Target {
    Standard,
    /// A pipe or a device, which stays what it is.
    Stream,
    /// A regular file, or nothing yet, at this place: no link.
    File(PathBuf),
}

impl Output {
    /// The output that a user names; `-` is the standard output. An existing file keeps its content until the output is
    /// written, and a new one is not there before.
    ///
    /// # Errors
    /// A place that cannot be written; a file among `inputs`.
    pub fn promised(path: &Path, content: Content, inputs: &[PathBuf]) -> Result<Output, OutputError> {
        let target = target(path, content)?;
        if let Target::File(file) = &target {
            if let Some(input) = inputs.iter().find(|input| same_file(input, file)) {
                return Err(OutputError::Input(input.clone()));
            }
            check_writable(file)?;
        }
        Ok(Output { path: path.into(), target })
    }

    /// Whether `other` goes to the same file, or both to the standard output: one would replace the other.
    pub fn is_same(&self, other: &Output) -> bool {
        match (&self.target, &other.target) {
            (Target::Standard, Target::Standard) => true,
            (Target::File(one), Target::File(other)) => same_place(one, other),
            (Target::Standard | Target::Stream | Target::File(_), _) => false,
        }
    }

    /// Writes `text`: into a pipe or to a device, or as all that is in the file.
    ///
    /// # Errors
    /// A disk that is full, and all that happened to the output since it was promised.
    pub fn write(&self, text: impl Display) -> Result<(), OutputError> {
        match &self.target {
            Target::Standard => {
                let mut out = io::stdout().lock();
                write!(out, "{text}").and_then(|()| out.flush())?;
            }
            Target::Stream => {
                let mut file = BufWriter::new(OpenOptions::new().write(true).open(&self.path)?);
                write!(file, "{text}").and_then(|()| file.flush())?;
            }
            Target::File(file) => replace(file, text)?,
        }
        Ok(())
    }

    /// Its name, as the user gave it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The regular file, for writers that write in parts; `None` for a pipe, a device and the standard output.
    pub fn file(&self) -> Option<&Path> {
        match &self.target {
            Target::File(file) => Some(file),
            Target::Standard | Target::Stream => None,
        }
    }
}

/// Whether a file may take the name `path` inside a folder that a command fills: nothing, a regular file or a link has
/// it. A link is replaced, never followed, so that nothing is written outside of the folder.
///
/// # Errors
/// A folder, a pipe or a device of that name.
pub fn check_replaceable(path: &Path) -> Result<(), OutputError> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => Err(OutputError::Taken("a folder")),
        Ok(found) if found.is_file() || found.is_symlink() => Ok(()),
        Ok(found) => Err(OutputError::Taken(special(found.file_type()))),
        Err(_) => Ok(()),
    }
}

/// Makes `text` all that is in the regular file `path`, at once: whoever reads it finds the old text or the new one. A
/// link of that name is replaced.
///
/// # Errors
/// A disk that is full, a folder that cannot be written.
pub fn replace(path: &Path, text: impl Display) -> io::Result<()> {
    let draft = Draft::create(path)?;
    let mut file = BufWriter::new(&draft.file);
    write!(file, "{text}").and_then(|()| file.flush())?;
    drop(file);
    if let Ok(found) = fs::metadata(path) {
        fs::set_permissions(draft.temporary(), found.permissions())?;
    }
    draft.keep()
}

/// Copies the regular file `from`, a file of `kind`, to `to`, at once. A link `from` is followed, a link `to` is
/// replaced.
///
/// # Errors
/// A source of another kind, a folder that cannot be written.
pub fn copy(from: &Path, kind: InputKind, to: &Path) -> io::Result<()> {
    let mut source = open(from, kind)?;
    let mut draft = Draft::create(to)?;
    io::copy(&mut source, &mut draft.file)?;
    draft.keep()
}

fn target(path: &Path, content: Content) -> Result<Target, OutputError> {
    if path == Path::new("-") {
        return match content {
            Content::Text => Ok(Target::Standard),
            Content::Data => Err(OutputError::Standard),
        };
    }
    let Ok(found) = fs::metadata(path) else { return Ok(Target::File(follow_links(path)?)) };
    let kind = found.file_type();
    match (kind.is_dir(), kind.is_file(), content) {
        (true, _, _) => Err(OutputError::Folder),
        (_, true, _) => Ok(Target::File(follow_links(path)?)),
        (false, false, Content::Text) => Ok(Target::Stream),
        (false, false, Content::Data) => Err(OutputError::NoFile(special(kind))),
    }
}

/// The kind of a place that is neither a file nor a folder.
fn special(kind: FileType) -> &'static str {
    if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

/// The place to which a name leads, also where nothing is there yet.
fn follow_links(path: &Path) -> Result<PathBuf, OutputError> {
    let mut place = path.to_path_buf();
    for _ in 0..MOST_LINKS {
        match fs::read_link(&place) {
            Ok(next) => place = place.parent().unwrap_or(Path::new("")).join(next),
            Err(_) => return Ok(place),
        }
    }
    Err(OutputError::System(ErrorKind::TooManyLinks.into()))
}

fn check_writable(file: &Path) -> Result<(), OutputError> {
    let is_new = fs::symlink_metadata(file).is_err();
    match OpenOptions::new().append(true).create(true).open(file) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(OutputError::NoFolder(file.parent().unwrap_or(file).to_path_buf()));
        }
        Err(error) => return Err(OutputError::System(error)),
    }
    if is_new {
        // Whoever could make it can remove it; if not, an empty file is left.
        let _ = fs::remove_file(file);
    }
    // The folder takes new files, and the name leaves room for that of the draft: dropped, it is gone.
    Draft::create(file).map(drop)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("pleach-outputs-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).expect("a folder");
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn promised(path: &Path) -> Result<Output, String> {
        Output::promised(path, Content::Text, &[]).map_err(|error| error.to_string())
    }

    #[test]
    fn a_promise_changes_nothing_and_is_given_only_where_it_can_be_kept() {
        let folder = Folder::new("promises");
        let (new, old) = (folder.0.join("new"), folder.0.join("old"));
        fs::write(&old, "kept").expect("a file");
        let output = promised(&new).expect("writable");
        promised(&old).expect("writable");
        assert_eq!((new.exists(), fs::read_to_string(&old).expect("a file")), (false, "kept".to_string()));
        output.write("text").expect("written");
        assert_eq!(fs::read_to_string(&new).expect("a file"), "text");

        assert_eq!(promised(&folder.0).expect_err("refused"), "is a folder; name a file in it");
        let reason = promised(&folder.0.join("no/such.txt")).expect_err("refused");
        assert_eq!(reason, format!("cannot be written: there is no folder {}/no; make it first", folder.0.display()));
        assert!(promised(&old.join("file")).expect_err("refused").starts_with("cannot be written: "));
    }

    #[test]
    fn links_are_followed_and_stay() {
        let folder = Folder::new("links");
        let (target, link, chain) = (folder.0.join("target"), folder.0.join("link"), folder.0.join("chain"));
        symlink("target", &link).expect("a link");
        symlink("link", &chain).expect("a link");
        promised(&chain).expect("writable").write("text").expect("written");
        assert_eq!(fs::read_to_string(&target).expect("a file"), "text");
        assert!(link.is_symlink() && chain.is_symlink() && !target.is_symlink());
        let round = folder.0.join("round");
        symlink("round", &round).expect("a link");
        assert!(promised(&round).is_err());
    }

    #[test]
    fn devices_and_pipes_are_written_and_stay_what_they_are() {
        let null = Path::new("/dev/null");
        promised(null).expect("writable").write("text").expect("written");
        assert!(fs::metadata(null).expect("a device").file_type().is_char_device());
        let refused = Output::promised(null, Content::Data, &[]).expect_err("refused").to_string();
        assert_eq!(refused, "is a device, and data must go into a regular file; name one");
        let refused = Output::promised(Path::new("-"), Content::Data, &[]).expect_err("refused").to_string();
        assert_eq!(refused, "is the standard output, and data must go into a regular file; name one");
    }

    #[test]
    fn a_name_in_a_folder_is_free_or_a_files() {
        let folder = Folder::new("names");
        let (file, link) = (folder.0.join("file"), folder.0.join("link"));
        fs::write(&file, "old").expect("a file");
        symlink("/elsewhere", &link).expect("a link");
        for path in [&file, &link, &folder.0.join("new")] {
            check_replaceable(path).expect("a file can take its place");
        }
        replace(&link, "new").expect("written");
        assert!(!link.is_symlink(), "a link is replaced, so nothing outside of the folder is written");
        let reason = |path: &Path| check_replaceable(path).expect_err("refused").to_string();
        let remedy = "and a file of that name is written here; remove it";
        assert_eq!(reason(&folder.0), format!("is a folder, {remedy}"));
        assert_eq!(reason(Path::new("/dev/null")), format!("is a device, {remedy}"));
    }

    #[test]
    fn a_promise_needs_a_name_that_leaves_room_for_a_draft() {
        let folder = Folder::new("long");
        let reason = promised(&folder.0.join("n".repeat(250))).expect_err("refused");
        assert_eq!(reason, "cannot be written: File name too long (os error 36)");
        assert_eq!(fs::read_dir(&folder.0).expect("a folder").count(), 0);
    }

    #[test]
    fn two_outputs_are_the_same_by_any_of_their_names() {
        let folder = Folder::new("twice");
        let (new, round) = (folder.0.join("new"), folder.0.join(".").join("new"));
        let output = |path: &Path| promised(path).expect("writable");
        assert!(output(&new).is_same(&output(&round)) && !output(&new).is_same(&output(&folder.0.join("other"))));
        symlink("new", folder.0.join("link")).expect("a link");
        assert!(output(&new).is_same(&output(&folder.0.join("link"))));
        let standard = output(Path::new("-"));
        assert!(standard.is_same(&output(Path::new("-"))) && !standard.is_same(&output(&new)));
        assert!(!output(Path::new("/dev/null")).is_same(&output(Path::new("/dev/null"))), "a device takes both");
    }

    #[test]
    fn an_input_is_refused_by_any_of_its_names() {
        let folder = Folder::new("inputs");
        let (input, link, hard) = (folder.0.join("input"), folder.0.join("link"), folder.0.join("hard"));
        fs::write(&input, "read").expect("a file");
        symlink(&input, &link).expect("a link");
        fs::hard_link(&input, &hard).expect("a link");
        for name in
            [&input, &link, &hard, &folder.0.join("../").join(folder.0.file_name().expect("a name")).join("input")]
        {
            let error =
                Output::promised(name, Content::Data, std::slice::from_ref(&input)).expect_err("refused").to_string();
            assert_eq!(error, format!("is {}, which this command reads; name another file", input.display()));
        }
        assert_eq!(fs::read_to_string(&input).expect("a file"), "read");
    }

    #[test]
    fn what_is_there_is_replaced_whole_or_not_at_all() {
        let folder = Folder::new("whole");
        let path = folder.0.join("file");
        fs::write(&path, "old").expect("a file");
        let output = promised(&path).expect("writable");
        // Somebody puts a folder in its place, over which no file can be renamed.
        fs::remove_file(&path).expect("removed");
        fs::create_dir(&path).expect("a folder");
        assert!(output.write("new").is_err());
        assert!(path.is_dir());
        assert_eq!(fs::read_dir(&folder.0).expect("a folder").count(), 1, "nothing else is left");
        fs::remove_dir(&path).expect("removed");
        output.write("new").expect("written");
        assert_eq!(fs::read_to_string(&path).expect("a file"), "new");
    }
}
