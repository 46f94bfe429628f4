//! Files that are read whole, and files that are opened to be read in parts.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use thiserror::Error;

use crate::InputKind;

/// Why a file is not read. Printed without its name, which the caller knows.
#[derive(Debug, Error)]
pub enum InputError {
    /// The system's reason.
    #[error("cannot be read: {0}")]
    System(#[from] io::Error),
    /// Something that is neither a file nor a pipe.
    #[error("is {found}, and {expected} must be a regular file{or_pipe}", expected = expected.name())]
    Kind {
        /// The kind of file that is there.
        found: &'static str,
        /// The kind of file that is expected.
        expected: InputKind,
        /// The other choice.
        or_pipe: &'static str,
    },
    /// A file that is too long.
    #[error("has {}, and {} must have at most {}; {}", found(*bytes), kind.name(), size(*limit_bytes), kind.remedy())]
    TooLarge {
        /// Its length, where it is known.
        bytes: Option<u64>,
        /// The kind of file that is expected.
        kind: InputKind,
        /// The most that it may have.
        limit_bytes: u64,
    },
    /// A pipe into which nobody writes.
    #[error("is a pipe into which nothing was written for {seconds} s; write to it first, or name a file")]
    NoFirstByte {
        /// How long it was silent.
        seconds: u64,
    },
    /// Bytes that are not text.
    #[error("is not UTF-8: {}", not_text(*offset, *beginning))]
    NotUtf8 {
        /// The first byte that is wrong.
        offset: usize,
        /// The format that its first bytes are those of.
        beginning: Option<&'static str>,
    },
}

/// For callers whose errors hold one of the system's.
impl From<InputError> for io::Error {
    fn from(error: InputError) -> io::Error {
        match error {
            InputError::System(error) => error,
            InputError::Kind { .. }
            | InputError::TooLarge { .. }
            | InputError::NoFirstByte { .. }
            | InputError::NotUtf8 { .. } => io::Error::new(io::ErrorKind::InvalidInput, format!("it {error}")),
        }
    }
}

fn found(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "more".into(), size)
}

fn size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let unit = UNITS.into_iter().find(|(_, unit)| bytes >= *unit);
    match unit {
        Some((name, unit)) if bytes.is_multiple_of(unit) => format!("{} {name}", bytes / unit),
        Some((name, unit)) => format!("{:.1} {name}", bytes as f64 / unit as f64),
        None => format!("{bytes} bytes"),
    }
}

fn not_text(offset: usize, beginning: Option<&'static str>) -> String {
    match beginning {
        Some(format) => format!("it is {format}; decompress or convert it first"),
        None => format!("byte {offset} is not part of a character"),
    }
}

/// Some editors and spreadsheets begin a text with it.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Formats that people take for text, by their first bytes.
const FORMATS: [(&[u8], &str); 8] = [
    (b"\x1f\x8b", "compressed by gzip"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd"),
    (b"\xfd7zXZ\0", "compressed by xz"),
    (b"BZh", "compressed by bzip2"),
    (b"PK\x03\x04", "an archive of zip"),
    (b"PAR1", "a table of parquet"),
    (b"\xff\xfe", "text in UTF-16"),
    (b"\xfe\xff", "text in UTF-16"),
];

/// The format, other than text, whose first bytes these are, as the end of a sentence.
pub fn format_of(bytes: &[u8]) -> Option<&'static str> {
    FORMATS.into_iter().find(|(beginning, _)| bytes.starts_with(beginning)).map(|(_, name)| name)
}

/// Opens a regular file of `kind`, to be read in parts. Links are followed.
///
/// # Errors
/// A folder, a device or a pipe; a file that is too long.
pub fn open(path: &Path, kind: InputKind) -> Result<File, InputError> {
    let (file, found) = open_any(path)?;
    if !found.is_file() {
        return Err(InputError::Kind { found: describe(&found), expected: kind, or_pipe: "" });
    }
    check_length(found.len(), kind)?;
    Ok(file)
}

/// All bytes of a regular file of `kind`, or of a pipe. Links are followed.
///
/// # Errors
/// See [`InputError`].
pub fn read(path: &Path, kind: InputKind) -> Result<Vec<u8>, InputError> {
    read_within(path, kind, InputKind::FIRST_BYTE)
}

/// The text of a regular file of `kind`, or of a pipe.
///
/// # Errors
/// See [`InputError`].
pub fn read_text(path: &Path, kind: InputKind) -> Result<String, InputError> {
    text_of(read(path, kind)?, kind)
}

/// The text of a regular file of `kind` that belongs to a folder, where a pipe is a fault that nobody waits for.
///
/// # Errors
/// See [`InputError`].
pub fn read_text_of_file(path: &Path, kind: InputKind) -> Result<String, InputError> {
    let file = open(path, kind)?;
    text_of(up_to(file, kind, kind.limit_bytes().unwrap_or(u64::MAX))?, kind)
}

fn text_of(bytes: Vec<u8>, kind: InputKind) -> Result<String, InputError> {
    let text = String::from_utf8(bytes).map_err(|error| {
        let beginning = format_of(error.as_bytes());
        InputError::NotUtf8 { offset: error.utf8_error().valid_up_to(), beginning }
    })?;
    match text.strip_prefix(BYTE_ORDER_MARK) {
        Some(rest) if kind.is_typed() => Ok(rest.into()),
        Some(_) | None => Ok(text),
    }
}

fn read_within(path: &Path, kind: InputKind, first_byte: Duration) -> Result<Vec<u8>, InputError> {
    let (file, found) = open_any(path)?;
    let is_pipe = found.file_type().is_fifo() || found.file_type().is_socket();
    match (found.is_file(), kind.pipe_limit_bytes()) {
        (true, _) => {
            check_length(found.len(), kind)?;
            // A file may grow while it is read.
            up_to(file, kind, kind.limit_bytes().unwrap_or(u64::MAX))
        }
        (false, Some(limit_bytes)) if is_pipe => {
            up_to(TimedPipe { file, first_byte: Some(first_byte) }, kind, limit_bytes)
        }
        (false, limit) => {
            let or_pipe = if limit.is_some() { " or a pipe" } else { "" };
            Err(InputError::Kind { found: describe(&found), expected: kind, or_pipe })
        }
    }
}

/// Without waiting: opening a pipe that nobody writes to would wait for ever, and so would some devices.
fn open_any(path: &Path) -> io::Result<(File, Metadata)> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
    let found = file.metadata()?;
    Ok((file, found))
}

fn check_length(bytes: u64, kind: InputKind) -> Result<(), InputError> {
    match kind.limit_bytes() {
        Some(limit_bytes) if bytes > limit_bytes => Err(InputError::TooLarge { bytes: Some(bytes), kind, limit_bytes }),
        Some(_) | None => Ok(()),
    }
}

fn up_to(from: impl Read, kind: InputKind, limit_bytes: u64) -> Result<Vec<u8>, InputError> {
    let mut bytes = Vec::new();
    from.take(limit_bytes.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| {
        let silent = error.get_ref().and_then(|inner| inner.downcast_ref::<NoFirstByte>());
        silent.map_or_else(
            || InputError::System(io::Error::from(error.kind())),
            |silent| InputError::NoFirstByte { seconds: silent.0 },
        )
    })?;
    if bytes.len() as u64 > limit_bytes {
        return Err(InputError::TooLarge { bytes: None, kind, limit_bytes });
    }
    Ok(bytes)
}

/// A pipe whose first byte has a deadline; the others come when its writer has them.
struct TimedPipe {
    file: File,
    /// Until the first byte has come.
    first_byte: Option<Duration>,
}

#[derive(Debug, Error)]
#[error("nothing was written for {0} s")]
struct NoFirstByte(u64);

impl Read for TimedPipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let began = Instant::now();
        loop {
            let left = match self.first_byte {
                None => None,
                Some(patience) => match patience.checked_sub(began.elapsed()) {
                    Some(left) => Some(Timespec::try_from(left).map_err(|_| io::ErrorKind::InvalidInput)?),
                    None => return Err(io::Error::other(NoFirstByte(patience.as_secs()))),
                },
            };
            let mut ready = [PollFd::new(&self.file, PollFlags::IN)];
            match poll(&mut ready, left.as_ref()) {
                Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
            match self.file.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => {
                    self.first_byte = None;
                    return other;
                }
            }
        }
    }
}

/// The kind of a place that is neither a file nor a pipe.
fn describe(found: &Metadata) -> &'static str {
    let kind = found.file_type();
    if kind.is_dir() {
        "a folder"
    } else if kind.is_char_device() {
        "a character device"
    } else if kind.is_block_device() {
        "a block device"
    } else if kind.is_socket() {
        "a socket"
    } else if kind.is_fifo() {
        "a pipe"
    } else {
        "no regular file"
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::PathBuf;

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("pleach-inputs-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).expect("a folder");
            Folder(path)
        }

        fn pipe(&self, name: &str) -> PathBuf {
            let path = self.0.join(name);
            let mode = rustix::fs::Mode::from_raw_mode(0o600);
            rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn refusal(path: &Path, kind: InputKind) -> String {
        read_text(path, kind).expect_err("refused").to_string()
    }

    #[test]
    fn devices_and_folders_are_refused() {
        let refused = refusal(Path::new("/dev/zero"), InputKind::RunFile);
        assert_eq!(refused, "is a character device, and a run file must be a regular file or a pipe");
        assert_eq!(
            refusal(Path::new("/"), InputKind::Text),
            "is a folder, and a text must be a regular file or a pipe"
        );
        let error = open(Path::new("/dev/urandom"), InputKind::Data).expect_err("refused").to_string();
        assert_eq!(error, "is a character device, and a file of data must be a regular file");
        let refused = refusal(Path::new("/no/such/file"), InputKind::RunFile);
        assert_eq!(refused, "cannot be read: No such file or directory (os error 2)");
    }

    #[test]
    fn a_file_without_an_end_costs_nothing() {
        let folder = Folder::new("sparse");
        let path = folder.0.join("sparse");
        File::create(&path).and_then(|file| file.set_len(1 << 40)).expect("a sparse file");
        assert_eq!(
            refusal(&path, InputKind::Schedule),
            "has 1024 GiB, and a schedule file must have at most 64 MiB; use a smaller file"
        );
        assert!(refusal(&path, InputKind::Text).contains("data tokenize"));
        assert!(open(&path, InputKind::Data).is_ok(), "data is read in parts");
    }

    #[test]
    fn a_pipe_is_read_to_its_end_however_slow_its_writer_is() {
        let folder = Folder::new("slow");
        let path = folder.pipe("pipe");
        let writer = std::thread::spawn({
            let path = path.clone();
            move || {
                std::thread::sleep(Duration::from_millis(30));
                let mut file = OpenOptions::new().write(true).open(path).expect("a pipe");
                file.write_all(b"first ").expect("written");
                std::thread::sleep(Duration::from_millis(30));
                file.write_all(b"second").expect("written");
            }
        });
        assert_eq!(read_text(&path, InputKind::RunFile).expect("text"), "first second");
        writer.join().expect("ended");
    }

    #[test]
    fn a_pipe_into_which_nobody_writes_is_left_in_time() {
        let folder = Folder::new("silent");
        let path = folder.pipe("pipe");
        let error = read_within(&path, InputKind::RunFile, Duration::from_millis(20)).expect_err("silent");
        assert_eq!(
            error.to_string(),
            "is a pipe into which nothing was written for 0 s; write to it first, or name a file"
        );
    }

    #[test]
    fn a_pipe_without_an_end_is_read_up_to_the_limit() {
        let folder = Folder::new("endless");
        let path = folder.pipe("pipe");
        let writer = std::thread::spawn({
            let path = path.clone();
            move || {
                let mut file = OpenOptions::new().write(true).open(path).expect("a pipe");
                let block = vec![b'#'; 1 << 16];
                // Ends when the reader has gone away.
                while file.write_all(&block).is_ok() {}
            }
        });
        assert_eq!(
            refusal(&path, InputKind::Profile),
            "has more, and a profile must have at most 4 MiB; use a smaller file"
        );
        writer.join().expect("ended");
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_a_file_that_people_write() {
        let folder = Folder::new("marks");
        let path = folder.0.join("file");
        std::fs::write(&path, "\u{feff}text").expect("a file");
        let read = |kind| read_text(&path, kind).expect("text");
        assert_eq!(InputKind::ALL.map(read).iter().filter(|text| *text == "text").count(), 8);
        assert_eq!((read(InputKind::Table), read(InputKind::Text)), ("text".into(), "\u{feff}text".into()));
    }

    #[test]
    fn a_pipe_in_a_folder_is_refused_without_waiting() {
        let folder = Folder::new("inside");
        let path = folder.pipe("pipe");
        let refused = read_text_of_file(&path, InputKind::RunFile).expect_err("refused").to_string();
        assert_eq!(refused, "is a pipe, and a run file must be a regular file");
    }

    #[test]
    fn compressed_text_is_named() {
        let folder = Folder::new("formats");
        for (beginning, name) in FORMATS {
            let path = folder.0.join("text");
            let bytes = [beginning, &[0xff; 8]].concat();
            std::fs::write(&path, bytes).expect("a file");
            assert_eq!(
                refusal(&path, InputKind::Text),
                format!("is not UTF-8: it is {name}; decompress or convert it first")
            );
        }
        let path = folder.0.join("text");
        std::fs::write(&path, b"ab\xff").expect("a file");
        assert_eq!(refusal(&path, InputKind::Text), "is not UTF-8: byte 2 is not part of a character");
    }
}
