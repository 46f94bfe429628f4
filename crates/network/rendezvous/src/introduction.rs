//! Introductions of processes, and the directory of all.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Hashes of everything that processes of a run must have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Version of the program, for messages.
    pub version: String,
    /// Hash of the program's file.
    pub binary: u64,
    /// Hash of the resolved run file.
    pub run_file: u64,
    /// `train::Setup::fingerprint`.
    pub program: u64,
    /// Hash of the text.
    pub text: TextHash,
    /// Hashes of other files that the command reads, by their names in messages.
    pub inputs: BTreeMap<String, u64>,
}

/// The text of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TextHash {
    /// It has read the text.
    Read(u64),
    /// It has no text of its own and receives that of process 0.
    FromProcess0,
    /// The command reads no text.
    NotNeeded,
}

/// First message of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Introduction {
    /// Its place.
    pub entry: ProcessEntry,
    /// Number of processes that it expects.
    pub processes: usize,
    /// Hashes of its binary, run file, program and text.
    pub identity: Identity,
}

/// One process of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessEntry {
    /// Its number.
    pub process: usize,
    /// Name of its host.
    pub host: String,
    pub ranks: Vec<usize>,
}

/// All processes of a run, by number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Directory {
    /// The processes; each has its number as index.
    pub processes: Vec<ProcessEntry>,
    /// Digits that process 0 draws for this run.
    pub run: String,
}

impl Directory {
    /// The process that has `rank`.
    pub fn process_of(&self, rank: usize) -> Option<&ProcessEntry> {
        self.processes.iter().find(|entry| entry.ranks.contains(&rank))
    }

    /// `process 3 (host b)`.
    pub fn named(&self, process: usize) -> String {
        match self.processes.get(process) {
            Some(entry) => entry.named(),
            None => format!("process {process}"),
        }
    }
}

impl ProcessEntry {
    /// `process 3 (host b)`.
    pub fn named(&self) -> String {
        format!("process {} (host {})", self.process, self.host)
    }
}

/// The hash of `bytes` in an [`Identity`].
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// The hash of a regular file in an [`Identity`].
///
/// # Errors
/// A file that cannot be read.
pub fn hash_file(path: &Path) -> io::Result<u64> {
    let mut file = files::open(path, files::InputKind::Data)?;
    let mut hash = Xxh3::new();
    let mut block = vec![0; 1 << 20];
    loop {
        match file.read(&mut block)? {
            0 => return Ok(hash.digest()),
            read => hash.update(&block[..read]),
        }
    }
}
