//! Files of `[data]` on their way from process 0 to processes whose hosts lack them. A process asks for one piece after
//! the other, so that neither end holds more than a piece.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use config::{DataSpec, SourceSpec};
use data::files_of;
use files::InputKind;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::process_group::member::GroupMember;

const MISSING: &str = "the files of [data] that are missing";
const LIST: &str = "the list of files of [data]";
const REQUESTS: &str = "requests for text";
const PIECES: &str = "pieces of text";
const PIECE_BYTES: u64 = 4 << 20;
/// How often a process looks whether the run has failed.
const GLANCE: Duration = Duration::from_millis(200);

/// The files of a source, as process 0 has them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SourceFiles {
    /// The source in their folder; empty for the folder itself.
    name: PathBuf,
    /// Paths in that folder, each with its bytes.
    files: Vec<(PathBuf, u64)>,
}

/// A message to process 0.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Request {
    /// The next bytes of a file: the place of its source among the texts of `[data]`, its own among the source's files,
    /// and an offset.
    Piece { source: usize, file: usize, offset: u64 },
    /// The sender has all of its files.
    Done,
}

/// The files that processes lack.
pub struct TextTransfer<'a> {
    data: &'a DataSpec,
    /// Sources that this process lacks.
    missing: Vec<usize>,
    /// Processes that lack any.
    receivers: usize,
    sources: BTreeMap<usize, SourceFiles>,
}

/// `[data]` with the files that were received, which end with this value.
pub struct Received {
    /// Sources of this host, and in a folder of their own those of process 0.
    pub data: DataSpec,
    folder: Option<PathBuf>,
}

impl Drop for Received {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            // Text is in memory and token files are mapped. Files that cannot be removed are left to the system.
            let _ = fs::remove_dir_all(folder);
        }
    }
}

impl<'a> TextTransfer<'a> {
    /// Agrees with the other processes on the files that travel. This process lacks the texts `missing` of `data`, by
    /// their places.
    ///
    /// # Errors
    /// A folder that process 0 cannot read, and failures of other processes.
    pub fn agree(member: &GroupMember, data: &'a DataSpec, missing: Vec<usize>) -> Result<TextTransfer<'a>, Failure> {
        let all = member.all_gather(MISSING, &missing)?;
        let receivers = all.iter().filter(|missing| !missing.is_empty()).count();
        let mut sources = BTreeMap::new();
        if receivers > 0 {
            let numbers: BTreeSet<usize> = all.into_iter().flatten().collect();
            let own = if member.is_first() { listed(data, &numbers)? } else { BTreeMap::new() };
            let malformed = |error: serde_json::Error| Failure::Work(format!("{LIST}: {error}"));
            let list = member.broadcast(LIST, serde_json::to_vec(&own).map_err(malformed)?)?;
            sources = serde_json::from_slice(&list).map_err(malformed)?;
        }
        Ok(TextTransfer { data, missing, receivers, sources })
    }

    /// Sends or receives. A process that lacks nothing does not wait.
    ///
    /// # Errors
    /// Files that cannot be read or written, and failures of other processes.
    pub fn complete(self, member: &GroupMember) -> Result<Received, Failure> {
        if member.is_first() {
            self.serve(member)?;
        }
        let mut received = Received { data: self.data.clone(), folder: None };
        if self.missing.is_empty() {
            return Ok(received);
        }
        let folder = private_folder().map_err(|error| in_file(&std::env::temp_dir(), &error))?;
        received.folder = Some(folder.clone());
        for number in &self.missing {
            let source = self.sources.get(number);
            let source = source.ok_or_else(|| Failure::Work(format!("{LIST}: source {number} must be on it")))?;
            let folder = folder.join(number.to_string());
            for (file, (path, bytes)) in source.files.iter().enumerate() {
                let path = folder.join(within(path)?);
                let piece = |offset| Request::Piece { source: *number, file, offset };
                fetch(member, &path, *bytes, piece).map_err(|error| in_file(&path, &error))?;
            }
            let path = folder.join(within(&source.name)?);
            let malformed = || Failure::Work(format!("{LIST}: source {number} must be in [data]"));
            received.data.texts_mut().nth(*number).ok_or_else(malformed)?.path = path;
        }
        send(member, &Request::Done)?;
        Ok(received)
    }

    /// Answers requests until all receivers are done.
    fn serve(&self, member: &GroupMember) -> Result<(), Failure> {
        let mut done = 0;
        while done < self.receivers {
            let (process, request) = receive(member, REQUESTS)?;
            let request: Request = serde_json::from_slice(&request)
                .map_err(|error| Failure::Work(format!("{}: {error}", member.control.directory().named(process))))?;
            match request {
                Request::Done => done += 1,
                Request::Piece { source, file, offset } => {
                    let spec = self.data.texts().nth(source);
                    let files = spec
                        .zip(self.sources.get(&source))
                        .and_then(|(spec, listed)| Some(root(spec).join(&listed.files.get(file)?.0)));
                    let path = files.ok_or_else(|| Failure::Work(format!("{REQUESTS}: unknown file {file}")))?;
                    let piece = piece(&path, offset).map_err(|error| in_file(&path, &error))?;
                    member.control.send_to(process, PIECES, piece).map_err(|error| Failure::Work(error.to_string()))?;
                }
            }
        }
        Ok(())
    }
}

/// A new folder for this process alone. Others may write where temporary files are, so one that is there already is
/// never used.
fn private_folder() -> std::io::Result<PathBuf> {
    let process = std::process::id();
    let mut number = 0;
    loop {
        let folder = std::env::temp_dir().join(format!("pleach-text-{process}-{number}"));
        match fs::DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => number += 1,
            made => return made.map(|()| folder),
        }
    }
}

/// The files of the sources `numbers` of `data`, with their sizes.
fn listed(data: &DataSpec, numbers: &BTreeSet<usize>) -> Result<BTreeMap<usize, SourceFiles>, Failure> {
    let mut sources = BTreeMap::new();
    for (number, source) in data.texts().enumerate().filter(|(number, _)| numbers.contains(number)) {
        let root = root(source);
        let mut files = vec![];
        for path in files_of(source).map_err(|error| Failure::Input(error.to_string()))? {
            let bytes = fs::metadata(&path).map_err(|error| in_file(&path, &error))?.len();
            files.push((path.strip_prefix(&root).unwrap_or(&path).to_path_buf(), bytes));
        }
        let name = source.path.strip_prefix(&root).unwrap_or(&source.path).to_path_buf();
        sources.insert(number, SourceFiles { name, files });
    }
    Ok(sources)
}

/// The folder of the files of `source`: the source, or the folder that it is in; of a pattern, the last folder that it
/// spells out.
fn root(source: &SourceSpec) -> PathBuf {
    let is_pattern = |path: &Path| path.to_string_lossy().contains(['*', '?']);
    match source.path.parent() {
        Some(parent) if !source.path.is_dir() => {
            parent.ancestors().find(|folder| !is_pattern(folder)).unwrap_or(parent).into()
        }
        Some(_) | None => source.path.clone(),
    }
}

/// `path`, if it leads below the folder that it is joined to.
fn within(path: &Path) -> Result<&Path, Failure> {
    match path.components().all(|component| matches!(component, Component::Normal(_))) {
        true => Ok(path),
        false => Err(Failure::Work(format!("{LIST}: {} must be in its folder", path.display()))),
    }
}

/// At most a piece of the file `path` from `offset` on.
fn piece(path: &Path, offset: u64) -> std::io::Result<Vec<u8>> {
    let mut file = files::open(path, InputKind::Data)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = vec![];
    file.take(PIECE_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Writes the file `path` of `bytes` bytes, piece by piece.
fn fetch(member: &GroupMember, path: &Path, bytes: u64, request: impl Fn(u64) -> Request) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file = files::recreate(path)?;
    let mut written = 0;
    while written < bytes {
        let failed = |failure: Failure| std::io::Error::other(failure.to_string());
        send(member, &request(written)).map_err(failed)?;
        let (_, piece) = receive(member, PIECES).map_err(failed)?;
        if piece.is_empty() {
            return Err(std::io::Error::other(
                "process 0 has less of it than it had; leave the files of [data] as they are",
            ));
        }
        file.write_all(&piece)?;
        written += piece.len() as u64;
    }
    Ok(())
}

fn send(member: &GroupMember, request: &Request) -> Result<(), Failure> {
    let failed = |reason: String| Failure::Work(format!("{REQUESTS}: {reason}"));
    let request = serde_json::to_vec(request).map_err(|error| failed(error.to_string()))?;
    member.control.send_to_first(REQUESTS, request).map_err(|error| failed(error.to_string()))
}

/// The next message under `topic`, and its sender. A failure of the run ends the wait.
fn receive(member: &GroupMember, topic: &str) -> Result<(usize, Vec<u8>), Failure> {
    loop {
        let received = member.control.receive(topic, GLANCE).map_err(|error| Failure::Work(error.to_string()))?;
        if let Some(received) = received {
            return Ok(received);
        }
    }
}

fn in_file(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Work(format!("{}: {error}", path.display()))
}
