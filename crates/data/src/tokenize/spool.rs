//! Tokens on their way into a token file: two files that grow, and a line that says how far they are whole.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::workers::Batch;
use super::{Key, Position, Written};
use crate::error::DataError;
use crate::token_file::assemble;
use crate::tokenizer::Tokenizer;
use crate::tokens::TokenType;

/// Bytes of tokens, and time, after which what was written is put on the disk.
const COMMIT_BYTES: u64 = 64 << 20;
const COMMIT_TIME: Duration = Duration::from_secs(5);

/// How far the files are whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mark {
    /// Of what the tokens are made.
    key: String,
    /// Where the work continues.
    input: u64,
    record: u64,
    documents: u64,
    tokens: u64,
    /// Tokens of the document that continues.
    open: u64,
}

/// The three files next to a token file that is being made. One process at a time has them.
pub(crate) struct Spool {
    out: PathBuf,
    mark: Mark,
    mark_file: File,
    tokens: BufWriter<File>,
    /// Where each document ends, in tokens: 64 bits each.
    ends: BufWriter<File>,
    width_bytes: u64,
    committed_tokens: u64,
    /// `None` before the first time: a beginning is on the disk as soon as there is one.
    committed: Option<Instant>,
}

fn sibling(out: &Path, what: &str) -> PathBuf {
    let name = out.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    out.with_file_name(format!(".{name}.{what}"))
}

impl Spool {
    /// The files next to `out`, as an earlier process has left them for the same `key`, or new ones.
    pub(crate) fn open(out: &Path, key: Key, tokenizer: &Tokenizer) -> Result<Spool, DataError> {
        let unwritable = |reason| DataError::Unwritable { path: out.to_path_buf(), reason };
        let mut mark_file = files::open_to_change(&sibling(out, "mark")).map_err(unwritable)?;
        if flock(&mark_file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(DataError::Busy(out.to_path_buf()));
        }
        let tokens = files::open_to_change(&sibling(out, "part-tokens")).map_err(unwritable)?;
        let ends = files::open_to_change(&sibling(out, "part-ends")).map_err(unwritable)?;
        let width_bytes = TokenType::of_vocabulary(tokenizer.vocabulary()).width_bytes() as u64;
        let mark = read_mark(&mut mark_file)
            .filter(|mark| mark.key == key.to_string())
            .filter(|mark| is_there(&tokens, mark.tokens * width_bytes) && is_there(&ends, mark.documents * 8))
            .unwrap_or_else(|| Mark { key: key.to_string(), ..Mark::default() });
        let mut spool = Spool {
            out: out.to_path_buf(),
            committed_tokens: mark.tokens,
            mark,
            mark_file,
            tokens: BufWriter::with_capacity(1 << 20, tokens),
            ends: BufWriter::new(ends),
            width_bytes,
            committed: None,
        };
        spool.cut().map_err(unwritable)?;
        Ok(spool)
    }

    /// Cuts what was written after the mark.
    fn cut(&mut self) -> std::io::Result<()> {
        for (file, bytes) in [
            (self.tokens.get_mut(), self.mark.tokens * self.width_bytes),
            (self.ends.get_mut(), self.mark.documents * 8),
        ] {
            file.set_len(bytes)?;
            file.seek(SeekFrom::Start(bytes))?;
        }
        Ok(())
    }

    /// Where the work continues.
    pub(crate) fn position(&self) -> Position {
        Position { input: self.mark.input, record: self.mark.record }
    }

    pub(crate) fn documents(&self) -> u64 {
        self.mark.documents
    }

    pub(crate) fn tokens(&self) -> u64 {
        self.mark.tokens
    }

    /// Appends a batch; now and then everything is put on the disk.
    pub(crate) fn append(&mut self, batch: &Batch) -> Result<(), DataError> {
        self.add(batch).map_err(|reason| DataError::Unwritable { path: self.out.clone(), reason })
    }

    fn add(&mut self, batch: &Batch) -> std::io::Result<()> {
        self.tokens.write_all(&batch.tokens)?;
        for (tokens, ends) in &batch.records {
            self.mark.tokens += tokens;
            self.mark.open += tokens;
            // Documents without tokens are left out.
            if *ends && self.mark.open > 0 {
                self.ends.write_all(&self.mark.tokens.to_le_bytes())?;
                self.mark.documents += 1;
                self.mark.open = 0;
            }
        }
        (self.mark.input, self.mark.record) = (batch.end.input, batch.end.record);
        let bytes = (self.mark.tokens - self.committed_tokens) * self.width_bytes;
        if bytes >= COMMIT_BYTES || self.committed.is_none_or(|at| at.elapsed() >= COMMIT_TIME) {
            self.commit()?;
        }
        Ok(())
    }

    /// First the content, then the mark that it is there.
    fn commit(&mut self) -> std::io::Result<()> {
        self.tokens.flush()?;
        self.tokens.get_ref().sync_data()?;
        self.ends.flush()?;
        self.ends.get_ref().sync_data()?;
        write_mark(&mut self.mark_file, &self.mark)?;
        (self.committed_tokens, self.committed) = (self.mark.tokens, Some(Instant::now()));
        Ok(())
    }

    /// Makes the token file of all that was appended, and removes the files next to it.
    pub(crate) fn finish(mut self, tokenizer: &Tokenizer) -> Result<Written, DataError> {
        let out = self.out.clone();
        let unwritable = |reason| DataError::Unwritable { path: out.clone(), reason };
        self.commit().map_err(unwritable)?;
        let (documents, tokens) = (self.mark.documents, self.mark.tokens);
        let [mut tokens_file, mut ends_file] = [&self.tokens, &self.ends].map(|writer| writer.get_ref());
        tokens_file.rewind().and_then(|()| ends_file.rewind()).map_err(unwritable)?;
        let hash = assemble(&self.out, tokenizer, (documents, tokens), BufReader::new(ends_file), tokens_file)?;
        self.remove();
        Ok(Written { documents, tokens, hash })
    }

    /// Removes the files.
    pub(crate) fn remove(self) {
        for what in ["part-tokens", "part-ends", "mark"] {
            // A file that is left is removed or used by the next process that makes this file.
            let _ = fs::remove_file(sibling(&self.out, what));
        }
    }
}

fn is_there(file: &File, bytes: u64) -> bool {
    file.metadata().is_ok_and(|found| found.len() >= bytes)
}

/// A hash in front shows a line that was not written whole.
fn read_mark(file: &mut File) -> Option<Mark> {
    let mut text = String::new();
    file.take(4096).read_to_string(&mut text).ok()?;
    let (hash, line) = text.lines().next()?.split_once(' ')?;
    if u64::from_str_radix(hash, 16).ok()? != xxh3_64(line.as_bytes()) {
        return None;
    }
    serde_json::from_str(line).ok()
}

fn write_mark(file: &mut File, mark: &Mark) -> std::io::Result<()> {
    let line = serde_json::to_string(mark)?;
    file.rewind()?;
    writeln!(file, "{:016x} {line}", xxh3_64(line.as_bytes()))?;
    file.sync_data()
}
